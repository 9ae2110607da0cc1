//! What a token says about its bearer.

use asyncgate_core::{
    PrincipalKey, PrincipalKind, TenantId, Timestamp,
    identity::{Role, Scope, Scopes},
};
use serde_json::{Map, Value};

use super::{Object, Refusal};

/// The claims of an access token. Times are whole seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// `iss`: who issued it.
    pub issuer: String,
    /// `aud`: who it is meant for.
    pub audience: Vec<String>,
    /// `sub`: the person or program behind it.
    pub subject: String,
    /// `tenant_id`
    pub tenant: TenantId,
    /// `principal_kind` and `principal_id`
    pub principal: PrincipalKey,
    /// `role`; without it, that of the principal's kind counts.
    pub role: Option<Role>,
    /// `scope`: names with spaces between them. Those that we do not know give nothing and are left out.
    pub scopes: Option<Scopes>,
    /// `exp`: the first second at which it is not valid any more.
    pub expires_at: i64,
    /// `iat`: when it was issued.
    pub issued_at: i64,
    /// `nbf`: the first second at which it is valid.
    pub not_before: Option<i64>,
    /// `client_id`: the OAuth client that it was issued to.
    pub client_id: Option<String>,
    /// `jti`: its own name.
    pub token_id: Option<String>,
    /// `fam`: the name that it shares with all tokens that come of one authorization.
    pub family: Option<String>,
}

/// The facts that a token is held against.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The only issuer that is trusted.
    pub issuer: &'a str,
    /// The name that must be among the audience.
    pub audience: &'a str,
    /// The present.
    pub now: Timestamp,
    /// How many seconds the clocks of issuer and verifier may differ.
    pub leeway_secs: u32,
}

impl Claims {
    /// Returns the role of the bearer.
    pub const fn effective_role(&self) -> Role {
        match self.role {
            Some(role) => role,
            None => Role::of_kind(self.principal.kind),
        }
    }

    /// Reads the claims of a token whose signature is good, and refuses those that do not hold now.
    pub(super) fn read(object: &Object, expected: &Expected<'_>) -> Result<Self, Refusal> {
        let claims = Reader(object).claims()?;
        if claims.issuer != expected.issuer {
            return Err(Refusal::Issuer);
        }
        if !claims.audience.iter().any(|name| name == expected.audience) {
            return Err(Refusal::Audience);
        }
        let at = |second: i64| Timestamp::from_millis(second.saturating_mul(1_000));
        let leeway = i64::from(expected.leeway_secs);
        if expected.now >= at(claims.expires_at.saturating_add(leeway)) {
            return Err(Refusal::Expired);
        }
        let begin = claims.not_before.map(|begin| begin.saturating_sub(leeway));
        if begin.is_some_and(|begin| expected.now < at(begin)) {
            return Err(Refusal::NotYetValid);
        }
        Ok(claims)
    }

    pub(super) fn to_json(&self) -> Value {
        let audience = match self.audience.as_slice() {
            [one] => Value::from(one.as_str()),
            several => Value::from(several),
        };
        let claims = [
            ("iss", Some(self.issuer.as_str().into())),
            ("aud", Some(audience)),
            ("sub", Some(self.subject.as_str().into())),
            ("tenant_id", Some(self.tenant.to_string().into())),
            ("principal_kind", Some(self.principal.kind.as_str().into())),
            ("principal_id", Some(self.principal.id.as_ref().into())),
            ("role", self.role.map(|role| role.as_str().into())),
            ("scope", self.scopes.map(|scopes| scopes.to_string().into())),
            ("exp", Some(self.expires_at.into())),
            ("iat", Some(self.issued_at.into())),
            ("nbf", self.not_before.map(Value::from)),
            ("client_id", self.client_id.as_deref().map(Value::from)),
            ("jti", self.token_id.as_deref().map(Value::from)),
            ("fam", self.family.as_deref().map(Value::from)),
        ];
        let present = claims.into_iter();
        let present = present.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(present.collect::<Map<_, _>>())
    }
}

struct Reader<'a>(&'a Object);

impl Reader<'_> {
    fn claims(&self) -> Result<Claims, Refusal> {
        const NO_TENANT: Refusal = Refusal::Malformed("its tenant_id is no tenant");
        const NO_KIND: Refusal = Refusal::Malformed("its principal_kind is unknown");
        let kind: PrincipalKind = self.text("principal_kind")?.parse().map_err(|_| NO_KIND)?;
        // Nobody acts as the server itself by a credential.
        if kind == PrincipalKind::System {
            return Err(NO_KIND);
        }
        let role = self.optional_text("role")?.map(|role| role.parse::<Role>());
        let scopes = self.optional_text("scope")?.map(|scopes| {
            let names = scopes.split(' ');
            names
                .filter_map(|name| name.parse::<Scope>().ok())
                .collect::<Scopes>()
        });
        Ok(Claims {
            issuer: self.text("iss")?,
            audience: self.audience()?,
            subject: self.text("sub")?,
            tenant: self.text("tenant_id")?.parse().map_err(|_| NO_TENANT)?,
            principal: PrincipalKey {
                kind,
                id: self.text("principal_id")?.into(),
            },
            role: role
                .transpose()
                .map_err(|_| Refusal::Malformed("its role is unknown"))?,
            scopes,
            expires_at: self.second("exp")?.ok_or(MISSING)?,
            issued_at: self.second("iat")?.ok_or(MISSING)?,
            not_before: self.second("nbf")?,
            client_id: self.optional_text("client_id")?,
            token_id: self.optional_text("jti")?,
            family: self.optional_text("fam")?,
        })
    }

    fn text(&self, name: &str) -> Result<String, Refusal> {
        let text = self.optional_text(name)?;
        text.filter(|text| !text.is_empty()).ok_or(MISSING)
    }

    fn optional_text(&self, name: &str) -> Result<Option<String>, Refusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    /// Reads a time. Some issuers write fractions, which are cut off.
    fn second(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let number = value
            .as_i64()
            .or_else(|| value.as_f64().map(|number| number.floor() as i64));
        number.map(Some).ok_or(WRONG_TYPE)
    }

    fn audience(&self) -> Result<Vec<String>, Refusal> {
        let name = |value: &Value| value.as_str().map(str::to_owned).ok_or(WRONG_TYPE);
        match self.0.get("aud") {
            None => Err(MISSING),
            Some(Value::Array(names)) => names.iter().map(name).collect(),
            Some(one) => name(one).map(|one| vec![one]),
        }
    }
}

const MISSING: Refusal = Refusal::Malformed("a claim is missing");
const WRONG_TYPE: Refusal = Refusal::Malformed("a claim is of the wrong type");

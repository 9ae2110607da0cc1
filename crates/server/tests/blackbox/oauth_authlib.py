"""Gets tokens with Authlib, as any program does that knows OAuth but not this server.

Usage: oauth_authlib.py URL REDIRECT_URI CLIENT_ID NAME
The password is in PASSWORD, the client's secret, if it has one, in CLIENT_SECRET.
"""

import os
import sys
import urllib.request
import json

from authlib.common.security import generate_token
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.jwk import KeySet

from oauth_browser import Browser

# Authlib insists on https, and this server is on loopback.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
url, redirect_uri, client_id, name = sys.argv[1:]
password, secret = os.environ["PASSWORD"], os.environ.get("CLIENT_SECRET")


def fetch(address):
    with urllib.request.urlopen(address, timeout=120) as answer:
        return json.load(answer)


def who_am_i(token):
    status, _, body = with_token(token)
    assert status == 200, body
    return json.loads(body)


def with_token(token):
    request = urllib.request.Request(f"{url}/v1/whoami", headers={"Authorization": f"Bearer {token}"})
    return Browser().send_request(request)


def refused(error, act):
    """Asserts that something is refused with an error of OAuth."""
    try:
        act()
    except OAuthError as refusal:
        assert refusal.error == error, refusal
    else:
        raise AssertionError(f"{error} was expected")


metadata = fetch(f"{url}/.well-known/oauth-authorization-server")
assert metadata["issuer"] == url, metadata
keys = KeySet.import_key_set(fetch(metadata["jwks_uri"]))
method = "client_secret_basic" if secret else "none"
session = OAuth2Session(
    client_id,
    secret,
    token_endpoint_auth_method=method,
    revocation_endpoint_auth_method=method,
    redirect_uri=redirect_uri,
    scope="tasks:read tasks:write",
    code_challenge_method="S256",
)


def log_in():
    verifier = generate_token(64)
    address, state = session.create_authorization_url(metadata["authorization_endpoint"], code_verifier=verifier)
    location = Browser().log_in(address, name, password)
    assert location.startswith(redirect_uri), location
    return location, verifier, state


location, verifier, state = log_in()
refused("invalid_grant", lambda: session.fetch_token(
    metadata["token_endpoint"], authorization_response=location, code_verifier=generate_token(64), state=state))
token = session.fetch_token(
    metadata["token_endpoint"], authorization_response=location, code_verifier=verifier, state=state)
assert token["token_type"] == "Bearer" and token["expires_in"] == 30 * 86400, token
assert token["scope"] == "tasks:read tasks:write", token

decoded = jwt.decode(token["access_token"], keys, algorithms=["RS256"])
assert decoded.header["kid"] in {key.thumbprint() for key in keys.keys}, decoded.header
jwt.JWTClaimsRegistry(
    iss={"essential": True, "value": "asyncgate"},
    aud={"essential": True, "value": "asyncgate-api"},
    exp={"essential": True},
    sub={"essential": True},
).validate(decoded.claims)
assert decoded.claims["client_id"] == client_id, decoded.claims
caller = who_am_i(token["access_token"])
assert caller["credential"] == "jwt" and caller["principal"]["id"] == name, caller
assert sorted(caller["scopes"]) == ["tasks:read", "tasks:write"], caller

old = token["refresh_token"]
newer = session.refresh_token(metadata["token_endpoint"], refresh_token=old)
assert newer["refresh_token"] != old, newer
who_am_i(newer["access_token"])
# Whoever uses a refresh token twice has a copy of it, so all tokens of the login end.
refused("invalid_grant", lambda: session.refresh_token(metadata["token_endpoint"], refresh_token=old))
refused("invalid_grant", lambda: session.refresh_token(
    metadata["token_endpoint"], refresh_token=newer["refresh_token"]))
for ended in token, newer:
    status, headers, body = with_token(ended["access_token"])
    assert status == 401, (status, body)
    assert "resource_metadata=" in headers["WWW-Authenticate"], headers

location, verifier, state = log_in()
token = session.fetch_token(
    metadata["token_endpoint"], authorization_response=location, code_verifier=verifier, state=state)
who_am_i(token["access_token"])
answer = session.revoke_token(metadata["revocation_endpoint"], token=token["access_token"])
assert answer.status_code == 200, answer
assert with_token(token["access_token"])[0] == 401
print("good")

//! Bounds of the server that its tenants share, so that none of them can take away all of it.

/// The used part of a shared bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// The part that all tenants use together.
    pub total: u64,
    /// The part that the tenant in question uses.
    pub own: u64,
    /// The number of tenants that use some of it.
    pub tenants: u64,
}

impl Share {
    /// Returns how much more the tenant may use. Whatever is free is there for everybody; when nothing
    /// is, a tenant may still use its equal part, which nobody else can fill.
    pub fn room(&self, capacity: u32) -> u64 {
        let capacity = u64::from(capacity);
        let users = self.tenants + u64::from(self.own == 0);
        let part = (capacity / users.max(1)).max(1);
        let free = capacity.saturating_sub(self.total);
        free.max(part.saturating_sub(self.own))
    }

    /// Counts one more that the tenant uses.
    pub(super) fn take_one(&mut self) {
        self.tenants += u64::from(self.own == 0);
        self.own += 1;
        self.total += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(total: u64, own: u64, tenants: u64) -> Share {
        Share {
            total,
            own,
            tenants,
        }
    }

    #[test]
    fn what_is_free_is_for_everybody_and_an_equal_part_for_each() {
        for (used, room) in [
            (share(0, 0, 0), 100),
            (share(60, 60, 1), 40),
            (share(100, 100, 1), 0),
            (share(60, 0, 1), 50),
            (share(30, 0, 1), 70),
            (share(100, 0, 1), 50),
            (share(130, 30, 2), 20),
            (share(150, 50, 2), 0),
            (share(150, 100, 2), 0),
            (share(150, 0, 2), 33),
            (share(900, 0, 400), 1),
            (share(901, 1, 401), 0),
        ] {
            assert_eq!(used.room(100), room, "{used:?}");
        }
    }

    #[test]
    fn a_tenant_that_begins_counts_among_the_others() {
        let mut used = share(100, 0, 1);
        let mut taken = 0;
        while used.room(100) > 0 {
            used.take_one();
            taken += 1;
        }
        assert_eq!((taken, used), (50, share(150, 50, 2)));
    }
}

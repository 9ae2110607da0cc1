//! The termination registry: the receipts that open obligations, and the receipts that discharge them.

use super::ReceiptType;

/// Returns true if a receipt of type `terminator` that names one of type `parent` discharges it.
pub const fn can_terminate(terminator: ReceiptType, parent: ReceiptType) -> bool {
    opens_obligation(parent) && is_terminal(terminator)
}

/// Returns true if receipts of this type open an obligation towards their addressee.
pub const fn opens_obligation(receipt_type: ReceiptType) -> bool {
    matches!(receipt_type, ReceiptType::TaskAssigned)
}

/// Returns true if receipts of this type discharge obligations.
pub const fn is_terminal(receipt_type: ReceiptType) -> bool {
    matches!(
        receipt_type,
        ReceiptType::TaskCompleted | ReceiptType::TaskFailed | ReceiptType::TaskCanceled
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_outcomes_terminate_and_only_an_assignment_is_terminated() {
        for parent in ReceiptType::ALL {
            for terminator in ReceiptType::ALL {
                let expected = parent.as_str() == "task.assigned"
                    && ["task.completed", "task.failed", "task.canceled"]
                        .contains(&terminator.as_str());
                assert_eq!(
                    can_terminate(terminator, parent),
                    expected,
                    "{terminator:?} {parent:?}"
                );
            }
        }
    }

    #[test]
    fn what_terminates_opens_nothing() {
        for receipt_type in ReceiptType::ALL {
            assert!(!(is_terminal(receipt_type) && opens_obligation(receipt_type)));
        }
    }
}

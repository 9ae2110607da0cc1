-- Takes the tables and columns of schema version 6 out of a file.
DROP TABLE record;
DROP TABLE audit;
DROP TABLE audit_log;
DROP TABLE outbox;
ALTER TABLE tenant DROP COLUMN tasks_created;
ALTER TABLE tenant DROP COLUMN receipt_bytes;
ALTER TABLE tenant DROP COLUMN lease_balance;

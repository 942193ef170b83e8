-- +goose Up

-- What accept journals hold that should be here by now: buyers have receipts for it. An audit compares it with Redis,
-- so that an order that both stores have lost is found. A row is here only while a journal has something to report.
--
-- Not tied to accept_journals: the report of a machine that never came back must outlive the wait for its journal.
create table journal_reports (
    journal_id  uuid        not null,
    host        text        not null, -- for people
    unlisted    bigint      not null, -- accepts that are overdue beside those in overdue_accepts, of any sale
    reported_at timestamptz not null default now(),

    constraint journal_reports_pkey primary key (journal_id),
    constraint journal_reports_unlisted_not_negative check (unlisted >= 0)
);

-- The oldest of them, as many as a journal lists. A sale is named here that may not exist any more.
create table overdue_accepts (
    journal_id uuid             not null,
    sale_id    text collate "C" not null,
    order_id   uuid             not null,

    constraint overdue_accepts_pkey primary key (journal_id, sale_id, order_id),
    constraint overdue_accepts_report foreign key (journal_id) references journal_reports (journal_id) on delete cascade
);

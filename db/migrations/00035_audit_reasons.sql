-- +goose Up

-- Why an operator did it. A transaction that knows the reason names it (set_config('sluice.reason', '<text>', true)), and
-- each line that it writes has it, unless the line has one of its own.
-- +goose StatementBegin
create function explain_audit_log() returns trigger language plpgsql as $$
begin
    if coalesce(new.detail ->> 'reason', '') = '' then
        new.detail := new.detail || jsonb_build_object('reason', current_setting('sluice.reason'));
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger audit_log_explain before insert on audit_log
    for each row when (coalesce(current_setting('sluice.reason', true), '') <> '')
    execute function explain_audit_log();

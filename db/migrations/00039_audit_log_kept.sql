-- +goose Up

-- A line of the audit log stays as it was written: who may not delete one can't write another in its place either. The
-- line of a rebuild alone is written again, by each attempt and by its end.
-- +goose StatementBegin
create function keep_audit_log() returns trigger language plpgsql as $$
begin
    if not has_table_privilege(tg_relid, 'delete') then
        raise insufficient_privilege using message = 'permission denied to change a line of the audit log';
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger audit_log_keep before update on audit_log
    for each row when (old.action not in ('rebuild', 'repair'))
    execute function keep_audit_log();

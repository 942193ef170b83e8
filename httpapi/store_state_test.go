package httpapi_test

import "github.com/jackc/pgx/v5"

// written is all data in Redis under the rig's prefix and in Postgres, to compare before and after.
func (r *rig) written() map[string]string {
	r.t.Helper()
	ctx := r.t.Context()
	state := map[string]string{}
	keys := r.rdb.Scan(ctx, 0, r.keys.Prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		dump, err := r.rdb.Dump(ctx, keys.Val()).Result()
		must(r.t, err)
		state["redis "+keys.Val()] = dump
	}
	must(r.t, keys.Err())
	conn, err := pgx.Connect(ctx, r.database)
	must(r.t, err)
	defer conn.Close(ctx) //nolint:errcheck // the database goes away with the test
	rows, err := conn.Query(ctx, `select table_name, query_to_xml(format('select * from %I order by 1', table_name), true, true, '')::text
		from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'
			and table_name not in ('accept_journals', 'covered_partitions', 'examined_server', 'leases')`) // by the background
	must(r.t, err)
	var table, content string
	if _, err := pgx.ForEachRow(rows, []any{&table, &content}, func() error {
		state["postgres "+table] = content
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return state
}

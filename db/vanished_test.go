package db_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/db"
	"sluice/internal/testkit"
)

// overTCP is a migrated database on a server that listens on the network: on a socket, keepalives are always 0.
func overTCP(t *testing.T, config ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a loopback address of its own, since the port is not free to choose")
	}
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	server := testkit.PrivatePostgres(t, append(config, "listen_addresses = '"+host+"'")...)
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("host", host)
	u.RawQuery = query.Encode()
	return u.String()
}

var vanished = []string{
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout",
}

// sessionSettings are those of a connection of a store's pool.
func sessionSettings(t *testing.T, address string) map[string]string {
	t.Helper()
	store, err := db.Open(t.Context(), address, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	got := map[string]string{}
	err = store.WithConn(t.Context(), func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(t.Context(), `select name, setting from pg_settings where name = any($1)`, vanished)
		if err != nil {
			return err
		}
		var name, value string
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
			got[name] = value
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestAVanishedMachineIsNoticed: each session of the pool is ended by the server when nobody has it any more.
func TestAVanishedMachineIsNoticed(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
		"tcp_user_timeout": "30000", "idle_in_transaction_session_timeout": "10000",
		"statement_timeout": "4000", "lock_timeout": "2000",
	}
	if got := sessionSettings(t, overTCP(t)); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAnOperatorsKeepalivesStay: whatever somebody has set is not replaced, wherever that was.
func TestAnOperatorsKeepalivesStay(t *testing.T) {
	t.Parallel()
	address := overTCP(t, "tcp_keepalives_count = 7")
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `alter role sluice set tcp_user_timeout = 12345`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := sessionSettings(t, withParam(withParam(address, "tcp_keepalives_idle=44"),
		"options=-c%20tcp_keepalives_interval%3D9%20-c%20statement_timeout%3D2500"))
	for name, want := range map[string]string{
		"tcp_keepalives_idle": "44", "tcp_keepalives_interval": "9", "tcp_keepalives_count": "7",
		"tcp_user_timeout": "12345", "statement_timeout": "2500",
	} {
		if got[name] != want {
			t.Errorf("%s: got %s, want %s, as it was set", name, got[name], want)
		}
	}
}

// TestAnAbandonedTransactionLetsGo: a process that hangs between two statements loses its transaction, and with it the
// lock that others wait for.
func TestAnAbandonedTransactionLetsGo(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Database(t), patient)
	f.sale("drop", 5)
	abandoned, err := db.Open(t.Context(), f.url, db.Options{IdleTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer abandoned.Close()
	var commit error
	err = abandoned.WithConn(t.Context(), func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(f.ctx(), `begin; lock table sales in access exclusive mode`); err != nil {
			return err
		}
		_, err := f.store.PersistOrders(f.ctx(), 1, events("drop", 1))
		_, commit = conn.Exec(f.ctx(), `commit`)
		return err
	})
	if err != nil || commit == nil {
		t.Errorf("behind the lock: got %v, want the order stored; the abandoned commit: got no error, want one", err)
	}
	if got := f.books("drop"); got.rows != 1 {
		t.Errorf("got %+v, want one row", got)
	}
}

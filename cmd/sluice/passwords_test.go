package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/internal/testkit"
)

// secretFile is a file with a secret, as an editor leaves it.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	return path
}

// The roles log in with the passwords that they are given, and with no other; a migration that names none leaves them
// as they are.
func TestMigrateGivesPasswords(t *testing.T) {
	t.Parallel()
	postgres := testkit.PrivatePostgres(t).URL()
	at := []string{"DATABASE_URL=" + postgres}
	passwords := append(slices.Clone(at), "POSTGRES_API_PASSWORD=s3cret-of-the-api",
		"POSTGRES_OPERATOR_PASSWORD_FILE="+secretFile(t, `of-the-'operator':/@`))
	for _, settings := range [][]string{passwords, at} {
		out := sluice(t, settings, "migrate", "--grant").mustFine(t)
		if !strings.Contains(out, "The roles have their rights.") {
			t.Errorf("got %q", out)
		}
	}
	askForPasswords(t, postgres)
	for _, try := range []struct {
		role, password string
		may            bool
	}{
		{"sluice_api", "s3cret-of-the-api", true},
		{"sluice_api", "s3cret", false},
		{"sluice_operator", `of-the-'operator':/@`, true},
		{"sluice_worker", "", false},
	} {
		if err := logIn(t, postgres, try.role, try.password); (err == nil) != try.may {
			t.Errorf("%s with %q: got %v", try.role, try.password, err)
		}
	}
}

func logIn(t *testing.T, url, role, password string) error {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	must(t, err)
	config.User, config.Password = role, password
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err == nil {
		must(t, conn.Close(t.Context()))
	}
	return err
}

// askForPasswords has a server of ours ask for the passwords of all roles but its owner's.
func askForPasswords(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { must(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	var file string
	must(t, conn.QueryRow(t.Context(), "show hba_file").Scan(&file))
	must(t, os.WriteFile(file, []byte("local all sluice trust\nlocal all all scram-sha-256\n"), 0o600))
	_, err = conn.Exec(t.Context(), "select pg_reload_conf()")
	must(t, err)
	testkit.Eventually(t, 10*time.Second, "the rules are read", func() bool {
		return logIn(t, url, "sluice_worker", "") != nil
	})
}

// The file is what a server starts with: each user has its password and its rights, and a stranger may ping.
func TestRedisStartsWithTheFileOfUsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.acl")
	out := sluice(t, []string{
		"REDIS_API_PASSWORD=password-of-the-api", "REDIS_WORKER_PASSWORD=password-of-the-worker",
		"REDIS_ADMIN_PASSWORD=password-of-the-admin", "REDIS_REPLICA_PASSWORD=password-of-the-replica",
		"REDIS_SENTINEL_PASSWORD=password-of-the-sentinel", "REDIS_CLUSTER_PASSWORD=password-of-the-cluster",
		"REDIS_OPERATOR_PASSWORD_FILE=" + secretFile(t, "password-of-the-operator"),
	}, "acl", "--file", file).mustFine(t)
	if want := file + " has 8 users.\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	if strings.Contains(string(text), "of-the") {
		t.Errorf("a password is in %s", text)
	}
	must(t, os.Chmod(filepath.Dir(file), 0o755)) // the server runs as another user, where this is root
	must(t, os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755))
	server := testkit.PrivateRedis(t, "aclfile "+file)
	as := func(user, password string, command ...any) error {
		options, err := redis.ParseURL(server.URL())
		must(t, err)
		options.Username, options.Password = user, password
		options.MaxRetries = -1
		client := redis.NewClient(options)
		defer func() { must(t, client.Close()) }()
		return client.Do(t.Context(), command...).Err()
	}
	for _, user := range []string{"sluice-api", "sluice-worker", "sluice-operator"} {
		password := "password-of-the-" + strings.TrimPrefix(user, "sluice-")
		must(t, as(user, password, "HSET", "sluice:{p00}:sale:a", "stock", "1"))
		refused(t, as(user, password, "HSET", "other", "stock", "1"), "NOPERM")
		refused(t, as(user, password, "FLUSHALL"), "NOPERM")
		refused(t, as(user, "password-of-the-admin", "PING"), "WRONGPASS")
	}
	must(t, as("admin", "password-of-the-admin", "CONFIG", "SET", "maxclients", "100"))
	must(t, as("replica", "password-of-the-replica", "REPLCONF", "listening-port", "1"))
	must(t, as("sentinel", "password-of-the-sentinel", "ROLE"))
	refused(t, as("cluster", "password-of-the-cluster", "CLUSTER", "MYID"), "This instance has cluster support disabled") // allowed, and this is none
	for _, user := range []string{"replica", "sentinel", "cluster"} {
		refused(t, as(user, "password-of-the-"+user, "GET", "sluice:{p00}:sale:a"), "NOPERM")
		refused(t, as(user, "password-of-the-"+user, "FLUSHALL"), "NOPERM")
	}
	must(t, as("", "", "PING"))
	refused(t, as("", "", "INFO"), "NOPERM")
}

func refused(t *testing.T, err error, with string) {
	t.Helper()
	if !redis.HasErrorPrefix(err, with) {
		t.Errorf("got %v, want %s", err, with)
	}
}

// A password that can't be used changes nothing, and is in no message.
func TestBadPasswordsOfOthers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.acl")
	var three []string
	for _, role := range []string{"API", "WORKER", "OPERATOR"} {
		three = append(three, "REDIS_"+role+"_PASSWORD="+strings.Repeat("a", 16))
	}
	for _, test := range []struct {
		settings []string
		args     []string
		says     string
	}{
		{[]string{"POSTGRES_API_PASSWORD=two words of a text"}, []string{"migrate", "--grant"}, "POSTGRES_API_PASSWORD has characters"},
		{[]string{"POSTGRES_API_PASSWORD=naïve words of a text"}, []string{"migrate", "--grant"}, "has characters that are not"},
		{[]string{"POSTGRES_API_PASSWORD_FILE=/no/where"}, []string{"migrate", "--grant"}, "no such file"},
		{three[:2], []string{"acl", "--file", file}, "set REDIS_OPERATOR_PASSWORD, or REDIS_OPERATOR_PASSWORD_FILE"},
		{append(slices.Clone(three), "REDIS_API_PASSWORD_FILE=x"), []string{"acl", "--file", file}, "both set"},
		{append(three[:2:2], "REDIS_OPERATOR_PASSWORD=fifteen-letters"), []string{"acl", "--file", file}, "15 characters"},
		{three, []string{"acl", "--file", "/no/where/users.acl"}, "no such file"},
	} {
		got := sluice(t, slices.Concat(test.settings, []string{"DATABASE_URL=postgres://127.0.0.1:1/sluice"}), test.args...)
		got.mustRefuse(t, 2, test.says)
		if strings.Contains(got.err, "words") {
			t.Errorf("a password is in %q", got.err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

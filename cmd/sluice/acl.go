package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"sluice/internal/acl"
)

type aclCmd struct {
	Prefix    string `default:"sluice-" placeholder:"TEXT" help:"What the names of the users begin with; api, worker and operator follow."`
	Functions bool   `help:"For REDIS_FUNCTIONS=true: the users may send no scripts, and call functions."`
	File      string `placeholder:"PATH" help:"Write an ACL file instead, with hashes of the passwords in REDIS_API_PASSWORD, REDIS_WORKER_PASSWORD, REDIS_OPERATOR_PASSWORD, and, where they are set, REDIS_ADMIN_PASSWORD, REDIS_REPLICA_PASSWORD, REDIS_SENTINEL_PASSWORD, REDIS_CLUSTER_PASSWORD, for users of these names; or of the files that REDIS_API_PASSWORD_FILE and so on name."`
	Newer     bool   `help:"For Redis 7.2 and later, and Valkey: name commands that older servers do not know."`
}

// Run prints a line for each user. No server is asked.
func (c *aclCmd) Run(a *app) error {
	if c.File != "" {
		return c.write(a)
	}
	lines := map[string]string{}
	for _, role := range acl.Roles {
		user := c.Prefix + string(role)
		lines[user] = acl.Line(role, user, c.Functions, c.Newer)
		if !a.json {
			sayf(a.out, "%s", lines[user])
		}
	}
	if a.json {
		return a.printJSON(lines)
	}
	sayf(a.err, "Passwords are not touched. Give each user one: ACL SETUSER %s%s '>PASSWORD'", c.Prefix, acl.API)
	return nil
}

// aclFileMode lets the server read the file, which runs as another user. It holds hashes, of passwords that are long.
const aclFileMode = 0o644

// write writes the file for the users' passwords that are in the environment.
func (c *aclCmd) write(a *app) error {
	passwords, err := passwordsOf("REDIS")
	if err != nil {
		return err
	}
	var servers acl.Servers
	for name, password := range map[string]*string{
		"ADMIN": &servers.Admin, "REPLICA": &servers.Replica, "SENTINEL": &servers.Sentinel, "CLUSTER": &servers.Cluster,
	} {
		if *password, err = passwordOf("REDIS_" + name + "_PASSWORD"); err != nil {
			return err
		}
	}
	var users []acl.User
	for i, role := range acl.Roles {
		if passwords[i] == "" {
			return usagef("set REDIS_%s_PASSWORD, or REDIS_%[1]s_PASSWORD_FILE: the file holds its hash",
				strings.ToUpper(string(role)))
		}
		users = append(users, acl.User{Role: role, Name: c.Prefix + string(role), Password: passwords[i]})
	}
	content := acl.File(users, servers, c.Functions, c.Newer)
	if err := replaceFile(c.File, content, aclFileMode); err != nil {
		return usagef("--file: %s", err)
	}
	return a.answer(map[string]string{"file": c.File}, "%s has %d users.", c.File, strings.Count(content, "\n"))
}

// replaceFile makes a file at once, or not at all: a server that starts from half of one would refuse everybody.
func replaceFile(path, content string, mode os.FileMode) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.partial")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	return errors.Join(file.Chmod(mode), file.Sync(), os.Rename(file.Name(), path))
}

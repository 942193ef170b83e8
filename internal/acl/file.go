package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// User is a user of a file.
type User struct {
	Role     Role
	Name     string
	Password string
}

// Servers are the passwords of users that are no program of ours: "" leaves a user out.
type Servers struct {
	// Admin is for `admin`, who may do everything: load functions, change settings, read the file again.
	Admin string
	// Replica is for `replica`, as which a server follows its primary (masteruser).
	Replica string
	// Sentinel is for `sentinel`, as which sentinels watch the servers and have them change places.
	Sentinel string
	// Cluster is for `cluster`, who makes the servers into a cluster.
	Cluster string
}

// lines are the rights of the users. Those of `replica` and `sentinel` are the ones that Redis' documentation gives
// (https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl, "ACL rules for Sentinel and Replicas").
func (s Servers) lines() (lines []string) {
	for _, user := range []struct{ name, password, rights string }{
		{"admin", s.Admin, "~* &* +@all"},
		{"replica", s.Replica, "resetkeys resetchannels -@all +psync +replconf +ping"},
		{"sentinel", s.Sentinel, "resetkeys &* -@all +multi +slaveof +ping +exec +subscribe +config|rewrite +role " +
			"+publish +info +client|setname +client|kill +script|kill"},
		{"cluster", s.Cluster, "resetkeys resetchannels -@all +ping +info +cluster"},
	} {
		if user.password != "" {
			lines = append(lines, "user "+user.name+" on "+hashOf(user.password)+" "+user.rights)
		}
	}
	return lines
}

// File is the content of an ACL file (`aclfile` in Redis' configuration) with these users. Of passwords it has hashes.
// A client that sends no password may ping, for health checks, and do nothing else.
func File(users []User, servers Servers, asFunctions, withNewer bool) string {
	lines := []string{"user default on nopass resetkeys resetchannels -@all +ping"}
	lines = append(lines, servers.lines()...)
	for _, user := range users {
		words := strings.Fields(Line(user.Role, user.Name, asFunctions, withNewer))
		words[1] = "user" // of ACL SETUSER
		words = slices.Insert(words[1:], slices.Index(words, "on"), hashOf(user.Password))
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

func hashOf(password string) string {
	sum := sha256.Sum256([]byte(password))
	return "#" + hex.EncodeToString(sum[:])
}

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

// File is the content of an ACL file (`aclfile` in Redis' configuration) with these users. Of passwords it has hashes.
// Whoever sends no password may ping, for health checks, and do nothing else. With an admin's password, there is a user
// `admin` who may do everything: load functions, change settings, read the file again.
func File(users []User, admin string, asFunctions, withNewer bool) string {
	lines := []string{"user default on nopass resetkeys resetchannels -@all +ping"}
	if admin != "" {
		lines = append(lines, "user admin on "+hashOf(admin)+" ~* &* +@all")
	}
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

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strings"
)

// maxActorBytes is what the audit log takes.
const maxActorBytes = 128

// actorVariable names the person who types, where the system's user does not: in a container, or on a shared account.
const actorVariable = "SLUICE_ACTOR"

// actor is who the audit log says it was: what SLUICE_ACTOR says, else the system's user and the host. Where the user
// has no name, as in a container without a list of users, the number stands for it.
func actor() string {
	name := os.Getenv(actorVariable)
	if name == "" {
		host, _ := os.Hostname() // empty, then
		name = systemUser() + "@" + cmp.Or(host, "a-host-without-a-name")
	}
	name = "cli:" + strings.ToValidUTF8(name, "?")
	return strings.ToValidUTF8(name[:min(len(name), maxActorBytes)], "") // it may be cut within a character
}

// systemUser is the name or the number of the user who runs this process.
func systemUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid-%d", os.Getuid())
}

package localservers

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the servers run as: the caller, or an unprivileged user when the caller is root (Postgres
// refuses to run as root, and Redis has no need to).
type account struct {
	stepDown bool
	uid, gid int
}

// serverAccount picks `postgres`, which a Postgres package creates, otherwise `nobody`.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err == nil {
			return parseAccount(found)
		}
		if unknown := user.UnknownUserError(""); !errors.As(err, &unknown) {
			return account{}, fmt.Errorf("look up user %s: %w", name, err)
		}
	}
	return account{}, errors.New("root can't run Postgres, and there is no user postgres or nobody to run it as")
}

func parseAccount(u *user.User) (account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("user %s has no numeric id: %w", u.Username, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("user %s has no numeric group: %w", u.Username, err)
	}
	return account{stepDown: true, uid: uid, gid: gid}, nil
}

// attributes are those of a process that runs as the account, in a session of its own: a ctrl-C in the terminal reaches
// us only, and we decide in which order the processes end.
func (a account) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if a.stepDown {
		attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attributes
}

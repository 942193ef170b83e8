package main

import (
	"os"
	"strings"

	"sluice/internal/config"
)

// leastPassword is how many characters a password has. An ACL file has plain SHA-256 of it, and anybody who reads the
// file can try a billion guesses a second: 16 random characters are out of reach.
const leastPassword = 16

// passwordOf reads a password that this command gives to others, and that is no setting of a program: from the variable
// name, or from the file that name_FILE names. It is empty where neither is set.
func passwordOf(name string) (string, error) {
	text, file := os.Getenv(name), os.Getenv(name+"_FILE")
	switch {
	case text != "" && file != "":
		return "", usagef("%s and %[1]s_FILE are both set: use one of them", name)
	case file != "":
		secret, err := config.ReadSecret(file)
		if err != nil {
			return "", usagef("%s_FILE: %s", name, err)
		}
		text = secret
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return "", usagef("%s has characters that are not printable ASCII", name)
	}
	if text != "" && len(text) < leastPassword {
		return "", usagef("%s has %d characters: it needs %d or more, random ones (openssl rand -hex 32)", name, len(text),
			leastPassword)
	}
	return text, nil
}

// passwordsOf reads the passwords of the three programs' users of a store, in the order api, worker, operator.
func passwordsOf(store string) (passwords [3]string, err error) {
	for i, role := range []string{"API", "WORKER", "OPERATOR"} {
		if passwords[i], err = passwordOf(store + "_" + role + "_PASSWORD"); err != nil {
			return passwords, err
		}
	}
	return passwords, nil
}

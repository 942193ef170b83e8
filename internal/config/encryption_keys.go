package config

import "sluice/webhook"

func encryptionKeys(into **webhook.Keyring) func(string) error {
	return func(text string) (err error) {
		*into, err = webhook.ParseKeyring(text)
		return err
	}
}

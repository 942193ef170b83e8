package pipeline

import (
	"unicode/utf8"
)

// Bounds of what an operator writes about a change.
const (
	maxActorBytes = 128  // fits a name, an address, a subject of OIDC
	MaxNoteBytes  = 1000 // some sentences
)

// ValidateActor returns a KindInvalid error for a name that the audit log can't store.
func ValidateActor(actor string) error {
	if actor == "" || len(actor) > maxActorBytes || !utf8.ValidString(actor) || hasControl(actor) {
		return Errorf(KindInvalid, "actor: use 1 to %d bytes of UTF-8 without control characters", maxActorBytes)
	}
	return nil
}

// ValidateReason returns a KindInvalid error for a reason that the audit log can't store.
func ValidateReason(reason string) error {
	if reason == "" || len(reason) > MaxNoteBytes || !utf8.ValidString(reason) || hasControl(reason) {
		return Errorf(KindInvalid, "reason: use 1 to %d bytes of UTF-8 without control characters", MaxNoteBytes)
	}
	return nil
}

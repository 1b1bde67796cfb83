package pagetoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// KeyRing has the keys of page tokens. The first key signs, and every key verifies. All processes
// behind one address must have the same ring, so that each of them can serve any page. To change
// the key without refusing tokens, first append the new key everywhere, then move it to the front
// everywhere, and then remove the old key.
type KeyRing struct{ keys []ringKey }

// ringKey is one key. Tokens name it by its id.
type ringKey struct {
	id     string
	secret []byte
}

// Limits of a key ring.
const (
	maxKeys        = 16
	maxKeyIDBytes  = 16
	minSecretBytes = 16
	macBytes       = 16
)

// ErrKeyRing is returned by [ParseKeyRing].
var ErrKeyRing = errors.New("gateway: malformed key ring")

// DefaultKeyRing returns a ring with one key that is derived from the id of the log, so that all
// processes of a log have the same ring without configuration. The id of a log is not secret:
// signatures by this key reveal damaged tokens and those of other logs, but not forged ones. With a
// forged token a caller can start a list at any position. Use the secret keys of [ParseKeyRing] to
// prevent that.
func DefaultKeyRing(log events.LogID) KeyRing {
	mac := hmac.New(sha256.New, log[:])
	mac.Write([]byte("skein page tokens"))
	return KeyRing{keys: []ringKey{{id: "log", secret: mac.Sum(nil)}}}
}

// ParseKeyRing parses "id:base64,…": 1 to 16 keys, each with an id of 1 to 16 letters, digits, "-"
// or "_", and a secret of at least 16 bytes in standard or URL base64. Its errors wrap
// [ErrKeyRing], and never quote a secret.
func ParseKeyRing(text string) (KeyRing, error) {
	var ring KeyRing
	for i, entry := range strings.Split(text, ",") {
		id, encoded, ok := strings.Cut(strings.TrimSpace(entry), ":")
		if !ok || !isValidKeyID(id) {
			return KeyRing{}, fmt.Errorf("%w: key %d: want id:base64, the id 1 to %d letters, digits, - or _",
				ErrKeyRing, i, maxKeyIDBytes)
		}
		secret, err := decodeSecret(encoded)
		if err != nil || len(secret) < minSecretBytes {
			return KeyRing{}, fmt.Errorf("%w: key %d (%s): want at least %d bytes of base64",
				ErrKeyRing, i, id, minSecretBytes)
		}
		if _, isDuplicate := ring.findKey(id); isDuplicate {
			return KeyRing{}, fmt.Errorf("%w: key %d: the id %s occurs twice", ErrKeyRing, i, id)
		}
		ring.keys = append(ring.keys, ringKey{id: id, secret: secret})
	}
	if len(ring.keys) > maxKeys {
		return KeyRing{}, fmt.Errorf("%w: %d keys: at most %d", ErrKeyRing, len(ring.keys), maxKeys)
	}
	return ring, nil
}

// IsZero reports whether the ring has no key.
func (r KeyRing) IsZero() bool { return len(r.keys) == 0 }

// DeriveSecrets derives a secret for another purpose from each key, in the order of the ring. The
// secrets reveal nothing about the keys. They are MACs of a text that is no token, because tokens
// begin with [Version], so no signature of a token is such a secret.
func (r KeyRing) DeriveSecrets(purpose string) [][]byte {
	secrets := make([][]byte, len(r.keys))
	for i, k := range r.keys {
		mac := hmac.New(sha256.New, k.secret)
		mac.Write([]byte("skein derived secret: " + purpose))
		secrets[i] = mac.Sum(nil)
	}
	return secrets
}

// findKey returns the key with the given id.
func (r KeyRing) findKey(id string) (ringKey, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return ringKey{}, false
}

// appendMAC appends the HMAC-SHA256 of a message, cut to macBytes, to dst.
func (k ringKey) appendMAC(dst, message []byte) []byte {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write(message)
	var sum [sha256.Size]byte
	return append(dst, mac.Sum(sum[:0])[:macBytes]...)
}

func isValidKeyID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxKeyIDBytes
}

// decodeSecret decodes standard or URL base64, with or without padding.
func decodeSecret(s string) ([]byte, error) {
	s = strings.TrimRight(s, "=")
	if b, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return b, nil
	}
	return base64.RawURLEncoding.DecodeString(s)
}

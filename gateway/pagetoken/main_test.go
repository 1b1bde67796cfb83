package pagetoken

import (
	"encoding/base64"
	"strings"
	"testing"
)

// secret returns a key of 32 bytes, as a key ring has it.
func secret(seed byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+seed)), 32)))
}

func ring(t testing.TB, text string) KeyRing {
	t.Helper()
	r, err := ParseKeyRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

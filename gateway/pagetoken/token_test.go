package pagetoken

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/skein-feed/skein/events"
)

var goldenToken = Token{
	List:     NewListID(7, "ann", "cats", ""),
	Position: events.Position{Log: [4]byte{1, 2, 3, 4}, Epoch: 7, Seq: 300},
	Cursor:   []byte{0xff, 0xfa, 0x40, 0x0a, 0x12, 0x34, 0x56, 0x78, 0x03, 'b', 'o', 'b', 0x00},
}

// The format is a promise to sessions that outlive the process. It may change only together with
// the version.
func TestTokenFormatIsStable(t *testing.T) {
	keys := ring(t, "2026:"+secret(0)+",2025:"+secret(1))
	const want = "AQQyMDI2UqRSNcIOAxYBAgMEB6wC__pAChI0VngDYm9iANz_C5sWiPc6tbDTldktmf4"
	if got := keys.Sign(goldenToken); got != want {
		t.Errorf("got the token %s, expected %s", got, want)
	}
	got, err := keys.Verify(want, goldenToken.List)
	if err != nil || got.Position != goldenToken.Position || !bytes.Equal(got.Cursor, goldenToken.Cursor) {
		t.Errorf("got %+v, %v; expected %+v", got, err, goldenToken)
	}
}

func TestDamagedTokensAreRefused(t *testing.T) {
	keys := ring(t, "a:"+secret(0))
	token := keys.Sign(goldenToken)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if _, err := keys.Verify(base64.RawURLEncoding.EncodeToString(bad), goldenToken.List); err == nil {
				t.Fatalf("a token with another bit %d of byte %d is accepted", bit, i)
			}
		}
		if _, err := keys.Verify(base64.RawURLEncoding.EncodeToString(raw[:i]), goldenToken.List); err == nil {
			t.Fatalf("a token cut to %d bytes is accepted", i)
		}
	}
	for _, text := range []string{
		"", "x", token + "A", token[1:], token + "=", token + "\n", token[:9] + "\r" + token[9:], "AQ", string(make([]byte, 2000)),
	} {
		if _, err := keys.Verify(text, goldenToken.List); err == nil {
			t.Errorf("%q is accepted, expected an error", text)
		}
	}
	// The last character has unused bits, but a token has only one valid text.
	last := token[len(token)-1]
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		if _, err := keys.Verify(token[:len(token)-1]+string(c), goldenToken.List); (err == nil) != (c == last) {
			t.Errorf("the token with %c at its end, which is %c: got %v", c, last, err)
		}
	}
}

func FuzzPageToken(f *testing.F) {
	keys := ring(f, "a:"+secret(0)+",b:"+secret(1))
	f.Add(keys.Sign(goldenToken))
	f.Add(keys.Sign(Token{}))
	f.Add("AQFh")
	f.Add(keys.Sign(goldenToken)[:20] + "\r" + keys.Sign(goldenToken)[20:])
	f.Fuzz(func(t *testing.T, text string) {
		token, err := keys.Verify(text, goldenToken.List)
		if err != nil {
			return
		}
		// Only a token that the ring has signed is accepted. One of the two keys signs it again
		// with the same text.
		swapped := KeyRing{keys: []ringKey{keys.keys[1], keys.keys[0]}}
		if keys.Sign(token) != text && swapped.Sign(token) != text {
			t.Errorf("%q is accepted as %+v, which no key signs with this text", text, token)
		}
	})
}

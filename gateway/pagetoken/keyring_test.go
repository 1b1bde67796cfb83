package pagetoken

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
)

func TestParseKeyRingAcceptsOnlyWellFormedRings(t *testing.T) {
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = fmt.Sprintf("k%d:%s", i, secret(0))
	}
	for text, want := range map[string]int{
		"2026:" + secret(0):                        1,
		" a-_Z:" + secret(0) + " , b:" + secret(1): 2,
		"a:" + strings.TrimRight(secret(0), "="):   1,
		"a:__" + strings.Repeat("A", 40):           1,
		strings.Join(many[1:], ","):                maxKeys,
		strings.Join(many, ","):                    0,
		"":                                         0,
		"a":                                        0,
		":" + secret(0):                            0,
		"a:":                                       0,
		"a:short":                                  0,
		"a:" + secret(0) + ",":                     0,
		"a:" + secret(0) + ",a:" + secret(1):       0,
		"a b:" + secret(0):                         0,
		strings.Repeat("a", 17) + ":" + secret(0):      0,
		"a:" + strings.Repeat("!", 40):                 0,
		"a:" + secret(0) + ",b:" + secret(1) + ":more": 0,
	} {
		r, err := ParseKeyRing(text)
		if want == 0 {
			if !errors.Is(err, ErrKeyRing) {
				t.Errorf("%q: got %v, expected %v", text, err, ErrKeyRing)
			}
			if err != nil && strings.Contains(err.Error(), secret(0)[:10]) {
				t.Errorf("%q: the error shows a secret: %v", text, err)
			}
			continue
		}
		if err != nil || len(r.keys) != want {
			t.Errorf("%q: got %d keys, %v; expected %d keys", text, len(r.keys), err, want)
		}
	}
}

func TestDefaultKeyRingDependsOnTheLog(t *testing.T) {
	a, again, b := DefaultKeyRing(events.LogID{1}), DefaultKeyRing(events.LogID{1}), DefaultKeyRing(events.LogID{2})
	token := a.Sign(Token{List: NewListID(1, "u"), Cursor: []byte("m")})
	if _, err := again.Verify(token, NewListID(1, "u")); err != nil {
		t.Errorf("a token of the same log: got %v, expected no error", err)
	}
	if _, err := b.Verify(token, NewListID(1, "u")); !errors.Is(err, ErrDamaged) {
		t.Errorf("a token of another log: got %v, expected %v", err, ErrDamaged)
	}
	if !(KeyRing{}).IsZero() || a.IsZero() {
		t.Errorf("IsZero is %v for the zero ring and %v for another one, expected true and false", (KeyRing{}).IsZero(), a.IsZero())
	}
}

// A key is changed in three steps. At each of them, old and new processes accept each other's
// tokens.
func TestKeysRotateWithoutRefusedTokens(t *testing.T) {
	oldKey, newKey := "old:"+secret(0), "new:"+secret(1)
	steps := []KeyRing{ring(t, oldKey), ring(t, oldKey+","+newKey), ring(t, newKey+","+oldKey), ring(t, newKey)}
	list := NewListID(4, "u")
	for i := range steps[:len(steps)-1] {
		for _, pair := range [][2]KeyRing{{steps[i], steps[i+1]}, {steps[i+1], steps[i]}} {
			if _, err := pair[1].Verify(pair[0].Sign(Token{List: list}), list); err != nil {
				t.Errorf("a token between steps %d and %d: got %v, expected no error", i, i+1, err)
			}
		}
	}
	if _, err := steps[3].Verify(steps[0].Sign(Token{List: list}), list); !errors.Is(err, ErrKey) {
		t.Errorf("a token whose key was removed: got %v, expected %v", err, ErrKey)
	}
}

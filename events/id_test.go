package events

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// drawID returns a generator of ids of every encoding, and of many that almost have a compact
// encoding.
func drawID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Uint64().Draw(t, "number")) }),
		rapid.StringMatching(`[0-9]{1,24}`),
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[0-9a-f-]{8}-[0-9a-f-]{4}-[0-9a-f-]{4}-[0-9a-f-]{4}-[0-9a-fF-]{12}`),
		rapid.StringMatching(`[!-~]{1,12}`),
		rapid.SampledFrom([]string{"0", "00", "1", "18446744073709551615", "18446744073709551616", "ü", "日本", "a", "ab"}),
	)
}

// TestAppendIDEncodesAndParses demands that AppendID encodes numbers and UUIDs in compact form and
// all other ids as text, and that CutID parses these keys and rejects all others.
func TestAppendIDEncodesAndParses(t *testing.T) {
	for _, test := range []struct{ id, key string }{
		{"", "\x03\x00"},
		{"0", "\x01\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"258", "\x01\x00\x00\x00\x00\x00\x00\x01\x02"},
		{"18446744073709551615", "\x01\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"18446744073709551616", "\x0318446744073709551616\x00"},
		{"99999999999999999999", "\x0399999999999999999999\x00"},
		{"007", "\x03007\x00"},
		{"+7", "\x03+7\x00"},
		{
			"00112233-4455-6677-8899-aabbccddeeff",
			"\x02\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
		},
		{"00112233-4455-6677-8899-AABBCCDDEEFF", "\x0300112233-4455-6677-8899-AABBCCDDEEFF\x00"},
		{"--112233-4455-6677-8899-aabbccddeeff", "\x03--112233-4455-6677-8899-aabbccddeeff\x00"},
		{"00112233-4455-6677-8899--abbccddeeff", "\x0300112233-4455-6677-8899--abbccddeeff\x00"},
		{"bob", "\x03bob\x00"},
	} {
		if got := AppendID([]byte("x"), test.id); string(got) != "x"+test.key {
			t.Errorf("AppendID(%q): got %q, want %q", test.id, got[1:], test.key)
		}
		id, rest, err := CutID([]byte(test.key + "rest"))
		if err != nil || id != test.id || string(rest) != "rest" {
			t.Errorf("CutID(%q): got %q, rest %q and error %v, want %q and rest", test.key, id, rest, err, test.id)
		}
	}

	hash := NewKeyedHash(LogID{1})
	if shard := ShardOf(hash.Pseudonym("bob")); shard != ShardOf("bob") {
		t.Errorf("shard of a pseudonym: got %d, want %d", shard, ShardOf("bob"))
	}

	for _, key := range []string{
		"", "\x00", "\x04abc", "\x01short", "\x02short", "\x03open", "\x037\x00",
		"\x0300112233-4455-6677-8899-aabbccddeeff\x00",
	} {
		if id, _, err := CutID([]byte(key)); !errors.Is(err, ErrKeyID) {
			t.Errorf("CutID(%q): got %q and error %v, want %v", key, id, err, ErrKeyID)
		}
	}
}

// TestIDKeysSortLikeIDs demands that keys sort like their ids, that no key is the prefix of
// another, and that each can be parsed. So a key of several ids sorts by the first id, then the
// next, and can be split without lengths.
func TestIDKeysSortLikeIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawID().Draw(t, "a")
		b := drawID().Draw(t, "b")
		keyA := AppendID(nil, a)
		keyB := AppendID(nil, b)

		want := CompareIDs(a, b)
		if got := bytes.Compare(keyA, keyB); got != cmp.Compare(want, 0) {
			t.Fatalf("comparison of the keys of %q and %q: got %d, want %d like the ids", a, b, got, want)
		}
		if got := CompareIDs(b, a); cmp.Compare(got, 0) != -cmp.Compare(want, 0) {
			t.Fatalf("CompareIDs(%q, %q): got %d, want the opposite of %d", b, a, got, want)
		}

		if a != b && (bytes.HasPrefix(keyA, keyB) || bytes.HasPrefix(keyB, keyA)) {
			t.Fatalf("keys of %q and %q: got one that is a prefix of the other, want none", a, b)
		}
		id, rest, err := CutID(append(keyA, keyB...))
		if err != nil || id != a || !bytes.Equal(rest, keyB) {
			t.Fatalf("CutID of the keys of %q and %q: got %q, rest %q and error %v, want %q and rest %q", a, b, id, rest, err, a, keyB)
		}
	})
}

// TestCompareIDsOrder demands that CompareIDs orders numbers by value, then UUIDs, and then all
// other ids as text.
func TestCompareIDsOrder(t *testing.T) {
	sorted := []string{
		"2", "10", "18446744073709551615", "00000000-0000-0000-0000-000000000002",
		"00000000-0000-0000-0000-000000000010", "", "010", "18446744073709551616", "B", "a", "aa", "ü",
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := CompareIDs(a, b); cmp.Compare(got, 0) != cmp.Compare(i, j) {
				t.Errorf("CompareIDs(%q, %q): got %d, want the sign of %d", a, b, got, cmp.Compare(i, j))
			}
		}
	}
}

// TestValidateIDRejectsBadIDs demands that ValidateID accepts printable UTF-8 without spaces, up to
// the largest length, and nothing else.
func TestValidateIDRejectsBadIDs(t *testing.T) {
	for id, want := range map[string]error{
		"a":                               nil,
		strings.Repeat("x", MaxIDBytes):   nil,
		"ü日本🎬":                            nil,
		"~!/:%":                           nil,
		"\u0378":                          nil, // an unassigned character
		"":                                ErrIDEmpty,
		strings.Repeat("x", MaxIDBytes+1): ErrIDTooLong,
		"a b":                             ErrIDChars,
		" ":                               ErrIDChars,
		"a\x00":                           ErrIDChars,
		"a\n":                             ErrIDChars,
		"\x7f":                            ErrIDChars,
		"\u0085":                          ErrIDChars,
		"\u00a0":                          ErrIDChars,
		"\u200e":                          ErrIDChars,
		"\u202e":                          ErrIDChars,
		"\u2066":                          ErrIDChars,
		"\u2028":                          ErrIDChars,
		"\u3000":                          ErrIDChars,
		"\uffff":                          ErrIDChars,
		"\ufdd0":                          ErrIDChars,
		"\xff":                            ErrIDChars,
		"\xed\xa0\x80":                    ErrIDChars,
		"a\xc3":                           ErrIDChars,
		"\ufffd":                          nil, // the replacement character itself is valid
	} {
		if err := ValidateID(id); !errors.Is(err, want) {
			t.Errorf("ValidateID(%q): got error %v, want %v", id, err, want)
		}
	}
}

// TestIDRunesAreThoseOfTheRule compares the frozen table with the properties of Unicode that define
// the rule. Unicode does not change the noncharacters and the bidirectional controls. If Unicode ever
// changes what white space is, the table must stay as it is, and this test names the difference.
func TestIDRunesAreThoseOfTheRule(t *testing.T) {
	refused := []*unicode.RangeTable{unicode.Cc, unicode.White_Space, unicode.Bidi_Control, unicode.Noncharacter_Code_Point}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.Is(unicode.Cs, r) { // no UTF-8 text has surrogates
			continue
		}
		if got, want := IsIDRune(r), !unicode.In(r, refused...); got != want {
			t.Errorf("IsIDRune(%U): got %v, want %v", r, got, want)
		}
	}
}

// namesThatPeopleType are names that need joiners, tags or variation selectors to be written
// correctly.
var namesThatPeopleType = map[string]string{
	"Persian, with a zero width non-joiner":      "علی\u200cرضا",
	"Malayalam, with a zero width joiner":        "നന്\u200dമ",
	"Malayalam, with a zero width non-joiner":    "ജോണ്\u200cസണ്",
	"Sinhala, with a zero width joiner":          "ශ්\u200dරී",
	"Arabic, with a number sign":                 "\u0600٥",
	"German, with a soft hyphen":                 "Donau\u00addampfer",
	"Thai, with a zero width space":              "กรุงเทพ\u200bมหานคร",
	"family, joined":                             "👩\u200d👩\u200d👧\u200d👦",
	"heart, with a variation selector":           "❤\ufe0f",
	"flag of England, with tags":                 "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
	"flag of Germany, with regional indicators":  "🇩🇪",
	"hand, with a skin tone":                     "👍🏽",
	"keycap":                                     "1\ufe0f\u20e3",
	"Chinese, with a variant of an ideograph":    "葛\U000e0100城",
	"private use, such as the logo of a company": "\uf8ff",
}

// TestNamesThatPeopleTypeAreIDs checks that such names are valid ids, are stored without a change and
// are printed without escapes.
func TestNamesThatPeopleTypeAreIDs(t *testing.T) {
	for what, name := range namesThatPeopleType {
		t.Run(what, func(t *testing.T) {
			if err := ValidateID(name); err != nil {
				t.Fatalf("ValidateID(%q): got error %v, want none", name, err)
			}
			if id, rest, err := CutID(AppendID(nil, name)); id != name || len(rest) != 0 || err != nil {
				t.Errorf("CutID of the key of %q: got %q, rest %q and error %v, want the name and no rest", name, id, rest, err)
			}
			if got := EscapeControls(name); got != name {
				t.Errorf("EscapeControls(%q): got %q, want the name", name, got)
			}
		})
	}
}

// TestShardsNeverChange pins the shards of ids, because the keys of stored rows contain them.
func TestShardsNeverChange(t *testing.T) {
	for id, want := range map[string]Shard{"alice": 2484, "1": 3257, "": 1440} {
		got := ShardOf(id)
		if got != want || got >= NumShards {
			t.Errorf("ShardOf(%q): got %d, want %d", id, got, want)
		}
		if partition := got.Partition(); partition != uint8(got>>5) {
			t.Errorf("partition of shard %d: got %d, want %d", got, partition, got>>5)
		}
	}
}

func FuzzCutID(f *testing.F) {
	for _, id := range []string{"", "7", "bob", "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899--abbccddeeff"} {
		f.Add(AppendID(nil, id))
	}
	f.Add([]byte("\x037\x00"))
	f.Fuzz(func(t *testing.T, key []byte) {
		// CutID parses only keys that AppendID writes.
		if id, rest, err := CutID(key); err == nil {
			if again := append(AppendID(nil, id), rest...); !bytes.Equal(again, key) {
				t.Fatalf("key of CutID(%q), %q: got %q, want the same key", key, id, again)
			}
		}

		// Every valid id can be parsed from its key.
		if id := string(key); ValidateID(id) == nil {
			if got, rest, err := CutID(AppendID(nil, id)); err != nil || got != id || len(rest) != 0 {
				t.Fatalf("CutID of the key of %q: got %q, rest %q and error %v, want the id and no rest", id, got, rest, err)
			}
		}
	})
}

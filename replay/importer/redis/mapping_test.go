package redis

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

func readExample(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustParse(t *testing.T, text string) *Mapping {
	t.Helper()
	m, err := ParseMapping([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The example does what its comments say, and the documentation contains it unchanged.
func TestExampleMappingIsDocumented(t *testing.T) {
	m := mustParse(t, string(readExample(t)))
	const at = 1_600_000_000_000_000
	for _, c := range []struct {
		key           string
		first, second string // member and score, or field and value
		wantRule      int
		want          fact
	}{
		{"followers:ann", "bob", "1.6e9", 1, fact{kind: events.UserFollowed, user: "bob", peer: "ann", at: at}},
		{
			"boards:ann", "bread", "Rye & co", 2,
			fact{kind: events.BoardCreated, user: "ann", board: "bread", text: "Rye & co", at: timeless},
		},
		{"boards:ann", "bread", "", 2, fact{kind: events.BoardCreated, user: "ann", board: "bread", at: timeless}},
		{
			"feed:bob:boards", "ann/bread", "1600000000000", 3,
			fact{kind: events.BoardFollowed, user: "bob", peer: "ann", board: "bread", at: at},
		},
		{
			"pins:ann:bread", "p1", "1600000000000.001", 4,
			fact{kind: events.PinCreated, user: "ann", board: "bread", pin: "p1", at: at + 1},
		},
		{"blocks:ann", "dan", "", 5, fact{kind: events.UserBlocked, user: "ann", peer: "dan", at: timeless}},
		{"mutes:ann", "dan", "", 6, fact{kind: events.UserMuted, user: "ann", peer: "dan", at: timeless}},
		{"likes:i1", "bob", "", 7, fact{kind: events.Reacted, user: "bob", item: "i1", at: timeless}},
		{"seen:bob", "i1", "1600000000000", 8, fact{kind: events.Played, user: "bob", item: "i1", at: at}},
		{"served:bob", "i1", "", 9, fact{kind: events.Served, user: "bob", item: "i1", at: timeless}},
	} {
		var fromKey captured
		r := m.findRule(c.key, &fromKey)
		if r == nil || r.number != c.wantRule {
			t.Errorf("key %s: got rule %v, want rule %d", c.key, r, c.wantRule)
			continue
		}
		got, err := r.factOfElement(fromKey, c.first, c.second, 2*at)
		if err != nil {
			t.Errorf("key %s, element %s: got the error %v, want none", c.key, c.first, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(fact{})); diff != "" {
			t.Errorf("key %s, element %s (-want +got):\n%s", c.key, c.first, diff)
		}
	}

	docs, err := os.ReadFile("../../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), "```yaml\n"+string(readExample(t))+"```\n") {
		t.Error("docs/migration.md does not contain testdata/example.yaml, want it unchanged in a block of yaml")
	}
}

// The kind of a reaction may stand in the key. Facts of two kinds are two facts, also in the files
// of records.
func TestReactionsHaveTheKindOfTheKey(t *testing.T) {
	m := mustParse(t, "rules:\n- {means: reactions, key: 'reactions:{kind}:{item}', member: '{user}'}\n")
	for _, c := range []struct {
		key, wantReaction, wantError string
	}{
		{"reactions:save:i1", "save", ""},
		{"reactions:_bookmark:i1", "_bookmark", ""},
		{"reactions:like:i1", "", ""},
		{"reactions:Save:i1", "", "reacted.kind must be 1 to 32 bytes of a-z, 0-9 and _"},
	} {
		t.Run(c.key, func(t *testing.T) {
			var fromKey captured
			r := m.findRule(c.key, &fromKey)
			got, err := r.factOfElement(fromKey, "bob", "", 1000)
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("got the error %v, want one with %q", err, c.wantError)
				}
				return
			}

			if err != nil {
				t.Errorf("got the error %v, want none", err)
			}
			want := fact{kind: events.Reacted, user: "bob", item: "i1", reaction: c.wantReaction, at: timeless}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(fact{})); diff != "" {
				t.Errorf("fact (-want +got):\n%s", diff)
			}

			decoded, err := decodeFact(got.appendTo(nil))
			if err != nil {
				t.Errorf("decode the record of the fact: got the error %v, want none", err)
			}
			if diff := cmp.Diff(want, decoded, cmp.AllowUnexported(fact{})); diff != "" {
				t.Errorf("fact from its record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMappingErrorsNameRuleAndField(t *testing.T) {
	for _, c := range []struct{ text, wantError string }{
		{"", "no rules"},
		{"rules: [", "yaml"},
		{"rules: [{mean: follow}]", "field mean not found"},
		{"rules: [null]", "rule 1 (): means must be one of follows,"},
		{`rules: [{means: follow, key: "k:{user}"}]`, `rule 1 (k:{user}): means must be one of`},
		{`rules: [{means: follows, member: "{user}"}]`, `key is missing`},
		{`rules: [{means: follows, key: "k:{user}"}]`, `it must have either member and score`},
		{`rules: [{means: follows, key: "k:{user}", score: s}]`, `score is without member`},
		{
			`rules: [{means: follows, key: "k:{user}", member: "{follower}", field: "{time:s}"}]`,
			`it must have either`,
		},
		{
			`rules: [{means: follows, key: "k:{user}", member: "{follower}", score: sec}]`,
			`score must be the unit of the time that it is, s, ms or us, or none, not "sec"`,
		},
		{`rules: [{means: follows, key: "k:{user}", member: "{follower}", score: auto}]`, `score must be the unit`},
		{`rules: [{means: follows, key: "k:{user}", member: "{follower}", type: zset}]`, `score is missing`},
		{
			`rules: [{means: follows, key: "k:{user}", member: "{follower}", type: list}]`,
			`type is "list", and the other fields are those of a set`,
		},
		{
			`rules: [{means: follows, key: "k:{user}", member: "{owner}"}]`,
			`follows has no {owner}: it has follower, user, time, _`,
		},
		{`rules: [{means: follows, key: "k:{user}", member: "{user}"}]`, `{user} is captured twice`},
		{`rules: [{means: follows, key: "k:{user}", member: "x"}]`, `follows needs {follower}`},
		{
			`rules: [{means: follows, key: "k:{who}", member: "{user}"}]`,
			`key "k:{who}" captures {who}, which is none of follower, user,`,
		},
		{`rules: [{means: follows, key: "k:{user", member: "{follower}"}]`, `has a brace that is not closed`},
		{`rules: [{means: follows, key: "k:user}", member: "{follower}"}]`, `has a brace that is not closed`},
		{
			`rules: [{means: follows, key: "k:{user}{follower}", member: "{_}"}]`,
			`two captures with nothing between them`,
		},
		{
			`rules: [{means: follows, key: "k:{user}", field: "{follower}", value: "{time}"}]`,
			`captures a {time} without its unit`,
		},
		{`rules: [{means: follows, key: "k:{user}", field: "{follower}", value: "{time:h}"}]`, `(not "h")`},
		{`rules: [{means: follows, key: "k:{user:s}", member: "{follower}"}]`, `only {time:…} has a unit`},
		{`rules: [{means: follows, key: "k:{user}:{time:s}", member: "{follower}"}]`, `{time} cannot stand in a key`},
		{
			`rules: [{means: follows, key: "k:{user}", member: "{follower}:{time:s}", score: s}]`,
			`{time} is captured, and the score is a time`,
		},
		{
			"rules:\n- {means: reactions, key: 'l:{user}', member: '{item}'}\n- {means: reactions, key: 'm', member: 'x'}",
			`rule 2 (m): reactions needs {user, item}`,
		},
	} {
		_, err := ParseMapping([]byte(c.text))
		if !errors.Is(err, ErrMapping) || !strings.Contains(err.Error(), c.wantError) {
			t.Errorf("mapping %s: got %v, want ErrMapping with %q", c.text, err, c.wantError)
		}
	}
}

func TestPatternsCaptureTexts(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string // nil: no match
	}{
		{"followers:{user}", "followers:ann", []string{"ann"}},
		{"followers:{user}", "followers:", nil},
		{"followers:{user}", "xfollowers:ann", nil},
		{"feed:{user}", "feed:ann:boards", nil},
		{"feed:{user...}", "feed:ann:boards", []string{"ann:boards"}},
		{"feed:{user}:boards", "feed:ann:boards", []string{"ann"}},
		{"feed:{user}:boards", "feed:a:b:boards", nil},
		{"{user}/{item}", "a/b", []string{"a", "b"}},
		{"{user}/{item}", "a/b/c", nil},
		{"{user}/{item...}", "a/b/c", []string{"a", "b/c"}},
		{"f:{{{user}}}", "f:{ann}", []string{"ann"}},
		{"f.{user}", "fx1", nil},
		{"{title...}", "", []string{""}},
		{"{title}", "", []string{""}},
		{"{title...}|{item}", "|i", []string{"", "i"}},
		{"{title}|{item}", "|i", []string{"", "i"}},
		{"{attributes...}", "", []string{""}},
		{"x{_...}", "x", []string{""}},
		{"{user...}", "", nil}, // an id is never empty
		{"{item}", "any\nthing :/", []string{"any\nthing :/"}},
		{"b:{user}", "b:\xff\x00", []string{"\xff\x00"}},
		{"é{user}é", "éxé", []string{"x"}},
		{"é{user}é", "éxéyé", nil},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}

		var texts captured
		var got []string
		if p.match(c.text, &texts) {
			for _, role := range p.roles {
				got = append(got, texts[role])
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("texts that pattern %q captures of %q (-want +got):\n%s", c.pattern, c.text, diff)
		}
	}
}

func TestGlobMatchesAllKeysOfTheMapping(t *testing.T) {
	for keys, want := range map[string]string{
		"app:a:{user},app:b:{user}": "app:*",
		"a*b:{user}":                `a\*b:*`,
		"{user}:x,{user}:y":         "",
		"a:{user},b:{user}":         "",
	} {
		text := "rules:\n"
		for key := range strings.SplitSeq(keys, ",") {
			text += "- {means: reactions, key: '" + key + "', member: '{item}'}\n"
		}
		if got := mustParse(t, text).scanPattern(); got != want {
			t.Errorf("keys %s: got the pattern %q, want %q", keys, got, want)
		}
	}
}

func TestTimesAreReadExactly(t *testing.T) {
	const start = events.Micros(1_700_000_000_000_000)
	for _, c := range []struct {
		unit      unit
		text      string
		want      events.Micros // negative if there is an error
		wantError string
	}{
		{unitSeconds, "1600000000", 1_600_000_000_000_000, ""},
		{unitSeconds, "1.6e+09", 1_600_000_000_000_000, ""},
		{unitSeconds, "1600000000.123456", 1_600_000_000_123_456, ""},
		{unitSeconds, "0.029999999999999999", 30_000, ""},
		{unitMillis, "1600000000123", 1_600_000_000_123_000, ""},
		{unitMillis, "1.6180000000000001", 1618, ""},
		{unitMicros, "1600000000123456", 1_600_000_000_123_456, ""},
		{unitSeconds, "0", 0, ""},
		{unitSeconds, "1700086400", start + 86_400_000_000, ""}, // a day
		{unitSeconds, "1700086401", -1, "more than a day after the start"},
		{unitSeconds, "1600000000123", -1, "in s, is more than a day after the start of the import: is that the unit?"},
		{unitSeconds, "inf", -1, "more than a day"},
		{unitMicros, "1e300", -1, "more than a day"},
		{unitSeconds, "-1", -1, "before 1970"},
		{unitSeconds, "-inf", -1, "before 1970"},
		{unitSeconds, "nan", -1, "is no number"},
		{unitSeconds, "", -1, "is no number"},
		{unitSeconds, "yesterday", -1, "is no number"},
		{unitAuto, "1600000000123", 1_600_000_000_123_000, ""},
		{unitAuto, "2020-09-13T12:26:40Z", 1_600_000_000_000_000, ""},
		{unitAuto, "2030-01-01", -1, "more than a day after"},
		{unitAuto, "soon", -1, "is no time"},
	} {
		got, err := c.unit.parse(c.text, start)
		switch {
		case c.want < 0 && (err == nil || !strings.Contains(err.Error(), c.wantError)):
			t.Errorf("%q in %v: got %d, %v, want an error with %q", c.text, c.unit, got, err, c.wantError)
		case c.want >= 0 && (err != nil || got != c.want):
			t.Errorf("%q in %v: got %d, %v, want %d", c.text, c.unit, got, err, c.want)
		}
	}
}

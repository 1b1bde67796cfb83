package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
	"go.yaml.in/yaml/v3"

	"github.com/skein-feed/skein/events"
)

// role is the meaning of a text that a pattern captures.
type role uint8

// The roles. The meaning of a rule determines which of them its patterns may capture.
const (
	roleFollower role = iota + 1
	roleUser
	roleOwner
	roleBoard
	roleTitle
	rolePin
	roleItem
	roleAttributes
	roleBlocked
	roleMuted
	roleKind
	roleTime
	// roleNothing is captured and ignored.
	roleNothing

	roleCount
)

// captured has the texts that were captured from a key and an element, by their roles.
type captured [roleCount]string

var roleNames = map[string]role{
	"follower": roleFollower, "user": roleUser, "owner": roleOwner, "board": roleBoard, "title": roleTitle, "pin": rolePin,
	"item": roleItem, "attributes": roleAttributes, "blocked": roleBlocked, "muted": roleMuted, "kind": roleKind,
	"time": roleTime, "_": roleNothing,
}

// String returns the name of the role.
func (r role) String() string {
	for name, as := range roleNames {
		if as == r {
			return name
		}
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// roleList returns the names of the roles of a set; an empty set stands for all roles.
func roleList(set roleSet) string {
	var names []string
	for as := range roleCount {
		if as > 0 && (set == 0 || set.has(as)) {
			names = append(names, as.String())
		}
	}
	return strings.Join(names, ", ")
}

// roleSet is a set of roles.
type roleSet uint32

// roles returns the set of roles.
func (c captures) roles() roleSet {
	return rolesOf(slices.Collect(maps.Keys(c))...)
}

// rolesOf returns the set of these roles.
func rolesOf(list ...role) (s roleSet) {
	for _, as := range list {
		s |= 1 << as
	}
	return s
}

// has reports whether the set contains a role.
func (s roleSet) has(as role) bool { return s&(1<<as) != 0 }

// captures maps roles to the fields of an event for the captured texts. If the event has a list of
// items, one text is one item of it.
type captures map[role]events.Field

// meaning says what the patterns of a rule must and may capture.
type meaning struct{ required, optional captures }

// meanings are the kinds of facts in Redis, by the names that all importers have for records of a
// kind ([events.ParseRecords]).
var meanings = map[string]meaning{
	"follows": {required: captures{roleFollower: events.FieldUser, roleUser: events.FieldPeer}},
	"board_follows": {
		required: captures{roleFollower: events.FieldUser, roleOwner: events.FieldPeer},
		optional: captures{roleBoard: events.FieldBoard},
	},
	"boards": {
		required: captures{roleOwner: events.FieldUser, roleBoard: events.FieldBoard},
		optional: captures{roleTitle: events.FieldTitle},
	},
	"pins": {
		required: captures{roleOwner: events.FieldUser, rolePin: events.FieldPin},
		optional: captures{roleBoard: events.FieldBoard, roleItem: events.FieldItem, roleAttributes: events.FieldAttributes},
	},
	"blocks": {required: captures{roleUser: events.FieldUser, roleBlocked: events.FieldPeer}},
	"mutes":  {required: captures{roleUser: events.FieldUser, roleMuted: events.FieldPeer}},
	"reactions": {
		required: captures{roleUser: events.FieldUser, roleItem: events.FieldItem},
		optional: captures{roleKind: events.FieldReaction},
	},
	"plays":  {required: captures{roleUser: events.FieldUser, roleItem: events.FieldItem}},
	"served": {required: captures{roleUser: events.FieldUser, roleItem: events.FieldItems}},
}

// structure is a type of values in Redis, by its name in the answers to the TYPE command.
type structure string

// The structures that are read.
const (
	sortedSet structure = "zset"
	set       structure = "set"
	hash      structure = "hash"
	list      structure = "list"
)

// Rule says what keys that match a pattern mean.
type Rule struct {
	// Means is the kind of fact in each element: follows, board_follows, boards, pins, blocks,
	// mutes, reactions, plays or served.
	Means string `yaml:"means"`
	// Key is the pattern of the keys.
	Key string `yaml:"key"`
	// Type is zset, set, hash or list. It follows from the other fields. If it is given, it must
	// agree with them.
	Type string `yaml:"type"`
	// Member is the pattern of the members of a set or sorted set.
	Member string `yaml:"member"`
	// Score is the unit of the scores of a sorted set: s, ms or us, or none if the scores are not
	// times.
	Score string `yaml:"score"`
	// Field and Value are the patterns of the fields and values of a hash. One of them may be
	// missing.
	Field string `yaml:"field"`
	Value string `yaml:"value"`
	// Element is the pattern of the elements of a list.
	Element string `yaml:"element"`

	number    int
	structure structure
	meaning   meaning
	kind      events.Kind
	unit      unit
	key       *pattern
	// first and second are the patterns of the two parts of an element: a field and a value. Other
	// elements only have the first part.
	first, second *pattern
}

// Mapping says what the keys of a Redis mean.
type Mapping struct {
	// Rules are tried in order. A key is read by the first rule whose pattern and structure it
	// matches.
	Rules []*Rule `yaml:"rules"`

	digest string
}

// Errors of mappings.
var (
	// ErrMapping means that a file is not a valid mapping. The error that wraps it names the rule
	// and the field.
	ErrMapping = errors.New("the mapping is wrong")

	errNoRules = errors.New("it has no rules")
)

// ParseMapping parses a mapping: YAML with a list "rules". An unknown field is an error, because it
// is probably misspelled.
func ParseMapping(data []byte) (*Mapping, error) {
	var m Mapping
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", ErrMapping, err)
	}
	if len(m.Rules) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrMapping, errNoRules)
	}
	for i, r := range m.Rules {
		if r == nil {
			r = &Rule{}
			m.Rules[i] = r
		}
		r.number = i + 1
		if err := r.compile(); err != nil {
			return nil, fmt.Errorf("%w: rule %d (%s): %w", ErrMapping, r.number, r.Key, err)
		}
	}
	m.digest = fmt.Sprintf("%016x", xxh3.Hash(data))
	return &m, nil
}

// String returns the number, meaning and pattern of the rule for people.
func (r *Rule) String() string {
	return fmt.Sprintf("rule %d (%s: %s)", r.number, r.Means, r.Key)
}

// compile checks the rule and parses its patterns.
func (r *Rule) compile() error {
	var isKnown bool
	r.meaning, isKnown = meanings[r.Means]
	if !isKnown {
		return fmt.Errorf("means must be one of follows, board_follows, boards, pins, blocks, mutes, reactions, plays, served, not %q", r.Means)
	}
	r.kind, _ = events.ParseRecords(r.Means)
	if r.Key == "" {
		return errors.New(`key is missing: the pattern of the keys, such as "followers:{user}"`)
	}
	if err := r.findStructure(); err != nil {
		return err
	}

	for _, f := range []struct {
		name, text string
		into       **pattern
	}{
		{"key", r.Key, &r.key},
		{"member", r.Member, &r.first},
		{"field", r.Field, &r.first},
		{"value", r.Value, &r.second},
		{"element", r.Element, &r.first},
	} {
		if f.text == "" {
			continue
		}
		p, err := parsePattern(f.text)
		if err != nil {
			return fmt.Errorf("%s %q %w", f.name, f.text, err)
		}
		*f.into = p
	}
	return r.checkRoles()
}

// findStructure derives the structure from the fields of the rule. A rule must have the fields of
// exactly one structure.
func (r *Rule) findStructure() error {
	var found []structure
	if r.Member != "" {
		found = append(found, set)
		if r.Score != "" {
			found[0] = sortedSet
		}
	} else if r.Score != "" {
		return errors.New("score is without member: the pattern of the sorted set's members")
	}
	if r.Field != "" || r.Value != "" {
		found = append(found, hash)
	}
	if r.Element != "" {
		found = append(found, list)
	}

	if len(found) != 1 {
		return errors.New("it must have either member and score (a sorted set), member (a set), field and value (a hash), " +
			"or element (a list)")
	}
	r.structure = found[0]

	if r.structure == sortedSet {
		u, ok := unitNames[r.Score]
		if !ok || u == unitAuto {
			return fmt.Errorf("score must be the unit of the time that it is, s, ms or us, or none, not %q", r.Score)
		}
		r.unit = u
	}
	if r.Type == "" || r.Type == string(r.structure) {
		return nil
	}
	if r.Type == string(sortedSet) && r.structure == set {
		return errors.New("score is missing: the unit of the time that it is, s, ms or us, or none")
	}
	return fmt.Errorf("type is %q, and the other fields are those of a %s", r.Type, r.structure)
}

// checkRoles returns an error unless the rule captures every role that its meaning needs, and none
// twice. It also sets the unit of a captured time.
func (r *Rule) checkRoles() error {
	var has roleSet
	for _, p := range []*pattern{r.key, r.first, r.second} {
		if p == nil {
			continue
		}
		for _, as := range p.roles {
			allowed := r.meaning.required.roles() | r.meaning.optional.roles() | rolesOf(roleTime, roleNothing)
			switch {
			case !allowed.has(as):
				return fmt.Errorf("%s has no {%s}: it has %s", r.Means, as, roleList(allowed))
			case has.has(as) && as != roleNothing:
				return fmt.Errorf("{%s} is captured twice", as)
			// An element has at most one time.
			case as == roleTime && r.unit != unitNone:
				return errors.New("{time} is captured, and the score is a time: say score: none, or leave {time} out")
			case as == roleTime && p != r.key:
				r.unit = p.unit
			case as == roleTime:
				// All elements of the key would have this time.
				return errors.New("{time} cannot stand in a key")
			}
			has |= rolesOf(as)
		}
	}
	if missing := r.meaning.required.roles() &^ has; missing != 0 {
		return fmt.Errorf("%s needs {%s}: write it where the key, member, field, value or element has it",
			r.Means, roleList(missing))
	}
	return nil
}

// hasTimes reports whether the elements of the rule have times.
func (r *Rule) hasTimes() bool {
	return r.unit != unitNone
}

// findRule returns the first rule whose pattern a key matches, or nil. It sets *into to the
// captured texts.
func (m *Mapping) findRule(key string, into *captured) *Rule {
	for _, r := range m.Rules {
		if r.key.match(key, into) {
			return r
		}
	}
	return nil
}

// findRuleFor changes the rule of a key to the first matching rule for the structure of the key. It
// reports whether there is one.
func (m *Mapping) findRuleFor(k *matchedKey, actual structure) bool {
	for _, r := range m.Rules[k.rule.number-1:] {
		texts := captured{}
		if r.structure == actual && r.key.match(k.key, &texts) {
			k.rule = r
			k.captured = texts
			return true
		}
	}
	return false
}

// scanPattern returns a pattern for the SCAN command that matches all keys of the mapping: their
// common prefix. It is empty if they have none.
func (m *Mapping) scanPattern() string {
	prefix := m.Rules[0].key.prefix
	for _, r := range m.Rules[1:] {
		n := 0
		for n < min(len(prefix), len(r.key.prefix)) && prefix[n] == r.key.prefix[n] {
			n++
		}
		prefix = prefix[:n]
	}
	if prefix == "" {
		return ""
	}

	var b strings.Builder
	for _, c := range []byte(prefix) {
		if slices.Contains([]byte(`*?[]\^-`), c) {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String() + "*"
}

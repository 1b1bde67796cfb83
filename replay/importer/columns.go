package importer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
)

// Kind is the kind of the facts in a file: a name that [events.ParseRecords] knows.
type Kind string

// The kinds of files.
const (
	// Follows have a follower and a followed user, and may have a time.
	Follows Kind = "follows"
	// Boards have an owner and a board, and may have its title, a follower of it, and a time.
	Boards Kind = "boards"
	// Pins have an owner and a pin, and may have its board, its item, the pin that it re-pins,
	// attributes, and a time.
	Pins Kind = "pins"
	// Plays have a user and an item, and may have a time.
	Plays Kind = "plays"
	// Reactions have a user and an item, and may have a kind, the pin on which the user reacted,
	// and a time.
	Reactions Kind = "reactions"
	// Unfollows have a follower and the user whom it no longer follows, and may have a time.
	Unfollows Kind = "unfollows"
	// BoardUnfollows have a follower, an owner and a board that the follower no longer follows, and
	// may have a time.
	BoardUnfollows Kind = "board_unfollows"
	// Blocks have a user and the user whom it blocks, and may have a time.
	Blocks Kind = "blocks"
	// Mutes have a user and the user whom it mutes, and may have the end of the mute and a time.
	Mutes Kind = "mutes"
	// FollowSettings have a follower and the followed user, and may have each setting of the follow
	// and a time.
	FollowSettings Kind = "follow_settings"
	// HiddenItems have a user and an item that it hides, and may have a time.
	HiddenItems Kind = "hidden_items"
)

// event returns the kind of the events that records stand for. A record of a board may also stand
// for an event of another kind.
func (k Kind) event() events.Kind {
	kind, _ := events.ParseRecords(string(k))
	return kind
}

// role is the meaning of a column.
type role uint8

const (
	follower role = iota
	user
	owner
	pin
	board
	title
	item
	repinOwner
	repinPin
	attributes
	attributesBase64
	when
	blocked
	muted
	until
	hideRepins
	notify
	favorite
	reactionKind
	pinOwner
	numRoles
)

// The order of roles is part of the shape of a file, and the shape is part of the name of an
// import. So a new role may be inserted anywhere, but the others must keep their order. Otherwise,
// an import that continues would have another name, and would send everything again.
var roleNames = [numRoles]string{
	"follower", "user", "owner", "pin", "board", "title", "item", "repin_owner", "repin_pin", "attributes",
	"attributes_base64", "time", "blocked", "muted", "until", "hide_repins", "notify", "favorite", "kind", "pin_owner",
}

// String returns the name of the column that has the role.
func (r role) String() string { return roleNames[r] }

// kindColumns describes the columns of the files of a kind.
type kindColumns struct {
	required, optional []role
	// positions are the roles of the columns of a file without names, in order. It is empty if
	// there is no usual order.
	positions []role
	// names are the names by which a column of each role is recognized.
	names map[role][]string
	// fields say where the event of a record has the columns.
	fields map[role]events.Field
	// sentence is the format of a sentence that tells people what a record says. inSentence are the
	// columns whose values it has.
	sentence   string
	inSentence []role
	// subject are the columns that identify the fact of a record; nil means the required columns.
	subject []role
}

// Names of columns, in lower case, without anything but letters and digits.
var (
	timeNames = []string{
		"time", "timestamp", "ts", "tsunix", "unix", "unixtime", "unixs", "unixts", "epoch", "date", "datetime", "at",
		"when", "since", "created", "createdat", "createdutc", "createtime", "listcreatedat", "followedat", "followtime",
		"occurredat",
	}
	followerNames = []string{
		"follower", "followerid", "from", "fromid", "fromnode", "fromnodeid", "fromuser", "fromuserid", "src", "srcid",
		"source", "sourceid", "truster", "trusterid",
	}
	userNames = []string{
		"user", "userid", "followee", "followeeid", "followed", "followedid", "to", "toid", "tonode", "tonodeid", "touser",
		"touserid", "dst", "dstid", "dest", "target", "targetid", "trustee", "trusteeid",
	}
	ownerNames         = []string{"owner", "ownerid", "user", "userid"}
	boardNames         = []string{"board", "boardid", "channel", "channelid", "playlist", "playlistid", "topic", "topicid"}
	titleNames         = []string{"title", "name", "boardtitle", "boardname"}
	boardFollowerNames = []string{"follower", "followerid", "subscriber", "subscriberid"}

	// No word is a name both of pins and of items. A file with only one of these words does not say
	// whether several pins show one item, and the importer does not guess that.
	pinNames  = []string{"pin", "pinid", "post", "postid", "upload", "uploadid"}
	itemNames = []string{
		"item", "itemid", "video", "videoid", "track", "trackid", "song", "songid", "movie", "movieid", "article",
		"articleid", "content", "contentid",
	}
	repinOwnerNames = []string{"repinowner", "repinownerid", "repinofowner", "repinofownerid"}
	repinPinNames   = []string{"repinpin", "repinpinid", "repinofpin", "repinofpinid"}
	viewerNames     = []string{"user", "userid", "viewer", "viewerid", "listener", "listenerid", "watcher", "watcherid"}
	reactorNames    = []string{"user", "userid", "liker", "likerid", "reactor", "reactorid"}
	kindNames       = []string{"kind", "reaction", "reactionkind", "reactiontype"}
	pinOwnerNames   = []string{"pinowner", "pinownerid"}
	blockerNames    = []string{"user", "userid", "blocker", "blockerid"}
	blockedNames    = []string{"blocked", "blockedid", "blockeduser", "blockeduserid", "blockee", "blockeeid", "target", "targetid"}
	muterNames      = []string{"user", "userid", "muter", "muterid"}
	mutedNames      = []string{"muted", "mutedid", "muteduser", "muteduserid", "mutee", "muteeid", "target", "targetid"}
	untilNames      = []string{"until", "muteduntil", "ends", "endsat", "expires", "expiresat"}
	hideRepinsNames = []string{"hiderepins", "hidereposts", "hidereblogs", "hideboosts"}
)

var kinds = map[Kind]kindColumns{
	Follows: {
		required: []role{follower, user}, optional: []role{when}, positions: []role{follower, user, when},
		names:    map[role][]string{follower: followerNames, user: userNames, when: timeNames},
		fields:   map[role]events.Field{follower: events.FieldUser, user: events.FieldPeer},
		sentence: "%s follows %s", inSentence: []role{follower, user},
	},
	Boards: {
		required: []role{owner, board}, optional: []role{title, follower, when},
		names: map[role][]string{
			owner: ownerNames, board: boardNames, title: titleNames, follower: boardFollowerNames, when: timeNames,
		},
		fields:   map[role]events.Field{owner: events.FieldUser, board: events.FieldBoard, title: events.FieldTitle},
		sentence: "%s has board %q", inSentence: []role{owner, board},
		subject: []role{follower, owner, board},
	},
	Pins: {
		required: []role{owner, pin},
		optional: []role{board, item, repinOwner, repinPin, attributes, attributesBase64, when},
		names: map[role][]string{
			owner: slices.Concat(ownerNames, []string{
				"author", "authorid", "creator", "creatorid", "poster", "posterid", "uploader", "uploaderid",
			}),
			pin: pinNames, board: boardNames, item: itemNames, repinOwner: repinOwnerNames,
			repinPin: repinPinNames, attributes: {"attributes"}, attributesBase64: {"attributesbase64"},
			when: slices.Concat(timeNames, []string{"pinnedat", "postedat", "publishedat", "uploadedat"}),
		},
		fields: map[role]events.Field{
			owner: events.FieldUser, pin: events.FieldPin, board: events.FieldBoard, item: events.FieldItem,
			repinOwner: events.FieldRepinUser, repinPin: events.FieldRepinPin,
		},
		sentence: "%s made pin %s on board %q, which shows item %s", inSentence: []role{owner, pin, board, item},
	},
	Plays: {
		required: []role{user, item}, optional: []role{when}, positions: []role{user, item, when},
		names: map[role][]string{
			user: viewerNames, item: itemNames,
			when: slices.Concat(timeNames, []string{"playedat", "watchedat", "viewedat", "listenedat"}),
		},
		fields:   map[role]events.Field{user: events.FieldUser, item: events.FieldItem},
		sentence: "%s played %s", inSentence: []role{user, item},
	},
	Reactions: {
		required: []role{user, item}, optional: []role{reactionKind, pinOwner, pin, when}, positions: []role{user, item, when},
		names: map[role][]string{
			user: reactorNames, item: itemNames, reactionKind: kindNames, pinOwner: pinOwnerNames, pin: {"pin", "pinid"},
			when: slices.Concat(timeNames, []string{"likedat", "reactedat"}),
		},
		fields: map[role]events.Field{
			user: events.FieldUser, item: events.FieldItem, reactionKind: events.FieldReaction, pinOwner: events.FieldRepinUser,
			pin: events.FieldRepinPin,
		},
		sentence: "%s reacts to %s", inSentence: []role{user, item},
		subject: []role{user, item, reactionKind},
	},
	Unfollows: {
		required: []role{follower, user}, optional: []role{when},
		names: map[role][]string{
			follower: followerNames, user: slices.Concat(userNames, []string{"unfollowed", "unfollowedid"}),
			when: slices.Concat(timeNames, []string{"unfollowedat"}),
		},
		fields:   map[role]events.Field{follower: events.FieldUser, user: events.FieldPeer},
		sentence: "%s no longer follows %s", inSentence: []role{follower, user},
	},
	BoardUnfollows: {
		required: []role{follower, owner, board}, optional: []role{when},
		names: map[role][]string{
			follower: boardFollowerNames, owner: ownerNames, board: boardNames,
			when: slices.Concat(timeNames, []string{"unfollowedat"}),
		},
		fields:   map[role]events.Field{follower: events.FieldUser, owner: events.FieldPeer, board: events.FieldBoard},
		sentence: "%s no longer follows board %q of %s", inSentence: []role{follower, board, owner},
	},
	Blocks: {
		required: []role{user, blocked}, optional: []role{when},
		names: map[role][]string{
			user: blockerNames, blocked: blockedNames, when: slices.Concat(timeNames, []string{"blockedat"}),
		},
		fields:   map[role]events.Field{user: events.FieldUser, blocked: events.FieldPeer},
		sentence: "%s blocks %s", inSentence: []role{user, blocked},
	},
	Mutes: {
		required: []role{user, muted}, optional: []role{until, when},
		names: map[role][]string{
			user: muterNames, muted: mutedNames, until: untilNames, when: slices.Concat(timeNames, []string{"mutedat"}),
		},
		fields:   map[role]events.Field{user: events.FieldUser, muted: events.FieldPeer},
		sentence: "%s mutes %s", inSentence: []role{user, muted},
	},
	FollowSettings: {
		required: []role{follower, user}, optional: []role{hideRepins, notify, favorite, when},
		names: map[role][]string{
			follower: followerNames, user: userNames, hideRepins: hideRepinsNames, notify: {"notify", "notifications", "bell"},
			favorite: {"favorite", "favourite", "closefriend"}, when: slices.Concat(timeNames, []string{"setat"}),
		},
		fields:   map[role]events.Field{follower: events.FieldUser, user: events.FieldPeer},
		sentence: "%s sets the follow of %s to", inSentence: []role{follower, user},
	},
	HiddenItems: {
		required: []role{user, item}, optional: []role{when}, positions: []role{user, item, when},
		names: map[role][]string{
			user: viewerNames, item: itemNames, when: slices.Concat(timeNames, []string{"hiddenat"}),
		},
		fields:   map[role]events.Field{user: events.FieldUser, item: events.FieldItem},
		sentence: "%s hides %s", inSentence: []role{user, item},
	},
}

// columnsOfKind returns the columns that files of a kind have in addition to the constants, and the
// values of the constants.
func columnsOfKind(kind Kind, constants map[string]string) (kindColumns, [numRoles]string, error) {
	var values [numRoles]string
	k, ok := kinds[kind]
	if !ok {
		return k, values, fmt.Errorf("cannot import %q", kind)
	}
	roles := slices.Concat(k.required, k.optional)
	for name, value := range constants {
		i := slices.IndexFunc(roles, func(r role) bool { return r.String() == name })
		switch {
		case i < 0:
			return k, values, fmt.Errorf("%w: %q is none of %s", ErrConstant, name, k.describeColumns())
		case value == "":
			return k, values, fmt.Errorf("%w: %s must have a value", ErrConstant, name)
		}
		values[roles[i]] = value
	}

	isConstant := func(r role) bool { return values[r] != "" }
	k.required = slices.DeleteFunc(slices.Clone(k.required), isConstant)
	k.optional = slices.DeleteFunc(slices.Clone(k.optional), isConstant)
	k.positions = slices.DeleteFunc(slices.Clone(k.positions), isConstant)
	k.names = maps.Clone(k.names)
	maps.DeleteFunc(k.names, func(r role, _ []string) bool { return isConstant(r) })
	return k, values, nil
}

// ErrConstant means that a constant is not valid, or is one of a role that the kind does not have.
var ErrConstant = errors.New("bad --constant")

// normalizeName returns the name of a column in lower case, without spaces and punctuation.
func normalizeName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, name)
}

// columns has the index of the column of each role; -1 means that the file has no such column.
type columns [numRoles]int

// noColumns returns columns without any column.
func noColumns() columns {
	var c columns
	for r := range c {
		c[r] = -1
	}
	return c
}

// missingRoles returns the names of those required roles that have no column.
func (c *columns) missingRoles(required []role) []string {
	var missing []string
	for _, r := range required {
		if c[r] < 0 {
			missing = append(missing, r.String())
		}
	}
	return missing
}

// columnsByName finds the roles of the columns by their names. It returns an error if two columns
// could have the same role: a wrong guess would reverse the follows.
func (k kindColumns) columnsByName(header []string) (columns, error) {
	c := noColumns()
	for i, name := range header {
		r := k.roleOf(normalizeName(name))
		if r == numRoles {
			continue
		}
		if c[r] >= 0 {
			return c, fmt.Errorf("columns %d (%s) and %d (%s) could both be the %s: give --columns",
				c[r]+1, header[c[r]], i+1, name, r)
		}
		c[r] = i
	}
	return c, nil
}

// columnsByPosition returns the columns of a file without names, in the usual order.
func (k kindColumns) columnsByPosition(fields int) columns {
	c := noColumns()
	for i, r := range k.positions[:min(fields, len(k.positions))] {
		c[r] = i
	}
	return c
}

// roleOf returns the role of a column with this normalized name, or numRoles if there is none.
func (k kindColumns) roleOf(name string) role {
	for r, names := range k.names {
		if slices.Contains(names, name) {
			return r
		}
	}
	return numRoles
}

// mapping is the value of --columns: roles by position, or columns of roles by name or number.
type mapping struct {
	positions []string
	named     map[role]string
}

// ErrColumns means that a mapping of columns is not valid, or does not fit the file.
var ErrColumns = errors.New("bad --columns")

// parseMapping parses a mapping: "follower,user,-,time" by position, "follower=who,user=whom" by
// the names in the file, or "follower=3,user=1" by number.
func (k kindColumns) parseMapping(spec []string) (*mapping, error) {
	if len(spec) == 0 {
		return nil, nil
	}
	m := &mapping{named: map[role]string{}}
	roles := slices.Concat(k.required, k.optional)
	for _, part := range spec {
		name, column, named := strings.Cut(part, "=")
		i := slices.IndexFunc(roles, func(r role) bool { return r.String() == name })
		switch {
		case !named && (part == "-" || i >= 0):
			m.positions = append(m.positions, part)
		case i < 0:
			return nil, fmt.Errorf("%w: %q is none of %s", ErrColumns, name, k.describeColumns())
		case column == "" || m.named[roles[i]] != "":
			return nil, fmt.Errorf("%w: %s must be given one column", ErrColumns, name)
		default:
			m.named[roles[i]] = column
		}
	}
	// Every part was either a role or a role with a column. The user must not mix the two.
	if len(m.positions) > 0 && len(m.named) > 0 {
		return nil, fmt.Errorf("%w: positions and names do not mix", ErrColumns)
	}
	if len(m.positions) == 0 {
		return m, m.checkComplete(k, func(r role) bool { return m.named[r] != "" })
	}
	for i, part := range m.positions {
		if part != "-" && slices.Contains(m.positions[:i], part) {
			return nil, fmt.Errorf("%w: %s must be given one column", ErrColumns, part)
		}
	}
	return m, m.checkComplete(k, func(r role) bool { return slices.Contains(m.positions, r.String()) })
}

// checkComplete returns an error if the mapping lacks a required role.
func (m *mapping) checkComplete(k kindColumns, has func(role) bool) error {
	for _, r := range k.required {
		if !has(r) {
			return fmt.Errorf("%w: it names no %s; columns are %s", ErrColumns, r, k.describeColumns())
		}
	}
	return nil
}

// describeColumns lists the roles of the kind for people, optional ones in brackets.
func (k kindColumns) describeColumns() string {
	parts := make([]string, 0, len(k.required)+len(k.optional))
	for _, r := range k.required {
		parts = append(parts, r.String())
	}
	for _, r := range k.optional {
		parts = append(parts, "["+r.String()+"]")
	}
	return strings.Join(parts, ", ") + " and - for others"
}

// resolve returns the columns of a file with this header, which may be nil.
func (m *mapping) resolve(header []string) (columns, error) {
	c := noColumns()
	for i, part := range m.positions {
		for r := range numRoles {
			if part == r.String() {
				c[r] = i
			}
		}
	}
	for r, name := range m.named {
		// A column may be named like a number, so names come before numbers.
		isNamed := func(h string) bool { return strings.EqualFold(h, name) }
		i := slices.IndexFunc(header, isNamed)
		if i >= 0 {
			if j := slices.IndexFunc(header[i+1:], isNamed); j >= 0 {
				return c, fmt.Errorf("%w: columns %d and %d are both named %s: give the number of one", ErrColumns, i+1, i+j+2, name)
			}
		} else {
			n, err := strconv.Atoi(name)
			if err != nil || n < 1 {
				return c, fmt.Errorf("%w: the file has no column %q (its columns: %s)",
					ErrColumns, name, strings.Join(header, ", "))
			}
			i = n - 1
		}
		c[r] = i
	}
	return c, nil
}

// minFields returns the number of fields that a record must have at least.
func (m *mapping) minFields() int {
	most := len(m.positions)
	for _, name := range m.named {
		if n, err := strconv.Atoi(name); err == nil {
			most = max(most, n)
		}
	}
	return most
}

// needsHeader reports whether the mapping refers to names in the file.
func (m *mapping) needsHeader() bool {
	for _, name := range m.named {
		if _, err := strconv.Atoi(name); err != nil {
			return true
		}
	}
	return false
}

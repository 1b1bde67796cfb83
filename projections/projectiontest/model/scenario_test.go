package model_test

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// A scenario is a short history with answers that were worked out by hand, in testdata/script. A
// line "# name" begins one. A line that begins with a time is a live event of that time, in an
// envelope of its own:
//
//	10 ann follows bob        20 ann unfollows bob/art      30 bob creates bob/art Pictures
//	40 bob deletes bob/art    50 bob pins bob/art           60 bob moves bob/art
//	70 ann blocks bob         80 ann mutes bob              90 ann unmutes bob
//	70 ann hides bob          80 ann shows bob              (what bob re-pins)
//	95 ann leaves             99 end old                    99 end *
//	10 bob pins bob/art p item cid    20 bob moves bob/art p    30 bob unpins p
//	40 ann likes item         50 ann unlikes item           60 ann plays item         70 score item -5
//	40 ann reacts item save   50 ann unreacts item save     (likes are the kind like)
//	70 ann hides-item i       80 ann shows-item i
//	80 ann gets i,j,k1..k9    90 ann clears                 95 ann reads 80 (the feed up to 80)
//
// A time is a number, or a date as 2024-01-31 or 2024-01-31T23:59:59.999999 where months matter. A
// pin is p unless it is named; it shows the item, else the one of its own id; it re-pins the pin x
// of the last user, or none. bob/- is bob's default board. "past 5" before the event makes it a
// backfill of time 5 from the source "old", with an offset above all before; "past 5 log#3" names
// source and offset. Every other line is a question about the history so far and, after the colon,
// its answer; lists are separated by commas, and - is an empty list.
type scenario struct {
	name    string
	history []events.Event
	offset  uint64
}

// TestScenarios runs the scenarios of all files.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no files of scenarios, want some")
	}
	total := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { total += runScenarios(t, file) })
	}
	if total < 150 {
		t.Errorf("ran %d scenarios, want at least 150", total)
	}
}

// runScenarios runs the scenarios of a file, and returns their number.
func runScenarios(t *testing.T, file string) (count int) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	s := &scenario{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
		case strings.HasPrefix(line, "#"):
			s = &scenario{name: strings.TrimSpace(line[1:])}
			count++
		case line[0] >= '0' && line[0] <= '9' || strings.HasPrefix(line, "past "):
			if err := s.appendEvent(line); err != nil {
				t.Fatalf("%s:%d: %q: %v", file, n, line, err)
			}
		default:
			question, want, ok := strings.Cut(line, ": ")
			if !ok {
				t.Fatalf("%s:%d: %q has no answer, want \"QUESTION: ANSWER\"", file, n, line)
			}
			got, err := answerQuestion(s.history, strings.Fields(question))
			if err != nil {
				t.Fatalf("%s:%d: %q: %v", file, n, line, err)
			}
			if got != want {
				t.Errorf("%s:%d: %s\n%s\n got %s\nwant %s", file, n, s.name, question, got, want)
			}
		}
	}
	return count
}

// appendEvent appends the event of a line.
func (s *scenario) appendEvent(line string) error {
	words := strings.Fields(line)
	ev := events.Event{Seq: uint64(len(s.history)) + 1}

	// A backfill has its own time, and perhaps a source and an offset.
	if words[0] == "past" {
		words = words[1:]
		s.offset++
		ev.Backfill = true
		ev.Source = "old"
		ev.Offset = s.offset
		if source, offset, ok := strings.Cut(words[1], "#"); ok {
			n, err := strconv.ParseUint(offset, 10, 64)
			if err != nil {
				return err
			}
			ev.Source = source
			ev.Offset = n
			words = append(words[:1], words[2:]...)
		}
	}

	var err error
	if ev.Time, err = parseTime(words[0]); err != nil {
		return err
	}

	// Ends of imports and scores name no user.
	if words[1] == "end" {
		ev.Kind = events.BackfillClosed
		ev.Source = strings.TrimPrefix(words[2], "*")
		s.history = append(s.history, ev)
		return nil
	}
	words = append(words, "", "", "", "", "")
	if words[1] == "score" {
		ev.Kind = events.ItemScored
		ev.Item = words[2]
		ev.Score, err = strconv.ParseInt(words[3], 10, 64)
		s.history = append(s.history, ev)
		return err
	}

	// All other events begin with the user, the verb and its target. The meaning of further words
	// depends on the kind.
	ev.User = words[1]
	if err := setKind(&ev, words[2], words[3]); err != nil {
		return err
	}
	if ev.Kind == events.PinCreated || ev.Kind == events.PinMoved {
		ev.Pin = cmp.Or(words[4], "p")
	}
	if ev.Kind == events.PinCreated {
		ev.Item = cmp.Or(words[5], ev.Pin)
		ev.RepinUser = words[6]
		if ev.RepinUser != "" {
			ev.RepinPin = "x"
		}
	}
	if ev.Kind == events.PinEdited {
		ev.Attributes = []byte(words[4])
	}
	if ev.Kind == events.BoardCreated {
		ev.Title = words[4]
	}
	if ev.Kind == events.Reacted || ev.Kind == events.Unreacted {
		ev.Reaction = events.ReactionOf(words[4])
	}
	if ev.Kind == events.UserMuted && words[4] != "" {
		// ann mutes bob until 70
		if ev.Until, err = parseTime(words[5]); err != nil {
			return err
		}
	}
	if ev.Kind == events.FollowSettingsSet {
		if ev.Settings, err = parseSettings(words[4]); err != nil {
			return err
		}
	}

	if ev.Backfill && (ev.Kind == events.BoardCreated || ev.Kind == events.PinCreated) {
		ev.Encoded = []byte(ev.Title + ev.Item) // enough to decide which of two is larger
	}
	s.history = append(s.history, ev)
	return nil
}

var settingNames = map[string]events.FollowSettings{
	"hide-repins": events.SettingHideRepins, "notify": events.SettingNotify, "favorite": events.SettingFavorite,
}

// parseSettings reads settings such as "notify,favorite". A "-" is none.
func parseSettings(text string) (settings events.FollowSettings, err error) {
	if text == "-" {
		return 0, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		setting, ok := settingNames[name]
		if !ok {
			return 0, fmt.Errorf("unknown setting %q", name)
		}
		settings |= setting
	}
	return settings, nil
}

// formatSettings is the opposite of parseSettings.
func formatSettings(settings events.FollowSettings) string {
	var names []string
	for _, name := range []string{"hide-repins", "notify", "favorite"} {
		if settings.Has(settingNames[name]) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

// setKind sets the kind of an event, and the fields that the target of the verb names.
func setKind(ev *events.Event, verb, target string) error {
	owner, board, isBoard := strings.Cut(target, "/")
	kinds := map[string]events.Kind{
		"follows": events.UserFollowed, "unfollows": events.UserUnfollowed, "leaves": events.UserDeleted,
		"creates": events.BoardCreated, "deletes": events.BoardDeleted,
		"pins": events.PinCreated, "moves": events.PinMoved, "edits": events.PinEdited,
		"blocks": events.UserBlocked, "unblocks": events.UserUnblocked,
		"mutes": events.UserMuted, "unmutes": events.UserUnmuted,
		"sets":     events.FollowSettingsSet,
		"follows/": events.BoardFollowed, "unfollows/": events.BoardUnfollowed, "unpins": events.PinDeleted,
		"likes": events.Reacted, "unlikes": events.Unreacted, "reacts": events.Reacted, "unreacts": events.Unreacted, "plays": events.Played,
		"gets": events.Served, "clears": events.SeenCleared, "reads": events.FeedRead,
		"hides-item": events.ItemHidden, "shows-item": events.ItemShown,
	}

	if isBoard && (verb == "follows" || verb == "unfollows") {
		verb += "/"
	}
	kind, ok := kinds[verb]
	if !ok {
		return fmt.Errorf("unknown verb %q", verb)
	}
	if ev.Backfill && !kind.Backfillable() {
		return fmt.Errorf("%s cannot be backfilled", kind)
	}
	ev.Kind = kind

	// The target of most verbs is a user or a board.
	if isBoard {
		ev.Board = strings.TrimPrefix(board, "-")
	}
	switch kind {
	case events.UserDeleted, events.SeenCleared:
	case events.Served:
		ev.Items = parseItems(target)
	case events.FeedRead:
		read, err := parseTime(target)
		ev.Read = read
		return err
	case events.PinDeleted, events.PinEdited:
		ev.Pin = target
	case events.Reacted, events.Unreacted, events.Played, events.ItemHidden, events.ItemShown:
		ev.Item = target
	case events.BoardCreated, events.BoardDeleted:
		if owner != ev.User || ev.Board == "" {
			return fmt.Errorf("%s of %q, want a named board of the user", kind, target)
		}
	case events.PinCreated, events.PinMoved:
		if owner != ev.User {
			return fmt.Errorf("%s on %q, want a board of the user", kind, target)
		}
	default:
		ev.Peer = owner
		if owner == ev.User {
			return fmt.Errorf("%s of oneself, want another user", kind)
		}
	}
	return nil
}

// answerQuestion answers a question about a history, in the words of the scenarios.
func answerQuestion(history []events.Event, q []string) (string, error) {
	if words, ok := answerFeedQuestion(history, q); ok {
		return words, nil
	}
	if words, ok, err := answerSeenQuestion(history, q); ok {
		return words, err
	}

	g := model.New(history)
	kind := model.None
	if len(q) == 3 && (q[0] == "following" || q[0] == "followers") {
		kind = map[string]model.Kind{"explicit": model.Explicit, "implicit": model.Implicit}[q[1]]
		q = []string{q[0], q[2]}
	}

	last := q[len(q)-1]
	owner, board, _ := strings.Cut(last, "/")
	board = strings.TrimPrefix(board, "-")
	switch q[0] {
	case "following":
		return formatEntries(g.Following(last, kind)), nil
	case "followers":
		return formatEntries(g.Followers(last, kind)), nil
	case "all":
		return formatEntries(g.BoardFollowers(owner, board, model.All)), nil
	case "on":
		return formatEntries(g.BoardFollowers(owner, board, model.OnBoard)), nil
	case "excluders":
		return formatEntries(g.BoardFollowers(owner, board, model.Excluders)), nil
	case "followed-boards":
		return formatEntries(g.FollowedBoards(last)), nil
	case "excluded-boards":
		return formatEntries(g.ExcludedBoards(last)), nil
	case "boards":
		return formatEntries(g.Boards(last)), nil
	case "blocked":
		return formatEntries(g.Blocked(last)), nil
	case "muted":
		return formatEntries(g.Muted(last)), nil
	case "mutuals":
		return formatEntries(g.Mutuals(q[1], last)), nil
	case "relationship":
		r := g.Relationship(q[1], last)
		return fmt.Sprintf("%s, %s, blocking=%t blocked=%t muting=%t settings=%s",
			formatFollow(r.Following), formatFollow(r.FollowedBy), r.Blocking, r.BlockedBy, r.Muting, formatSettings(r.Settings)), nil
	case "favorites":
		return formatEntries(g.With(last, events.SettingFavorite)), nil
	case "notifying":
		return formatEntries(g.With(last, events.SettingNotify)), nil
	case "counts":
		if strings.Contains(last, "/") {
			return fmt.Sprintf("%+v", g.BoardCounts(owner, board)), nil
		}
		return fmt.Sprintf("%+v", g.UserCounts(last)), nil
	case "users":
		return strings.Join(g.Users(), " "), nil
	}
	if len(q) != 2 {
		return "", fmt.Errorf("unknown question %q", q)
	}
	if strings.Contains(last, "/") {
		return formatFollow(g.Board(q[0], owner, board)), nil
	}
	return formatFollow(g.User(q[0], last)), nil
}

func formatFollow(f model.Follow) string {
	if f.Kind == model.None {
		return "none"
	}
	return fmt.Sprintf("%s %d", f.Kind, f.Since)
}

func formatEntries(entries []model.Entry) string {
	words := make([]string, 0, len(entries))
	for _, e := range entries {
		name := e.User
		if e.Owner != "" {
			name = e.Owner + "/" + e.Board
			if e.Board == "" {
				name += "-"
			}
		}
		if e.Kind == model.Explicit || e.Kind == model.Implicit || e.User != "" && e.Kind != model.None {
			name += " " + e.Kind.String()
		}
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s %d %s", name, e.Since, e.Title)))
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

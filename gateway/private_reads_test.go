package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// privateReads are the rows of the table about settings of follows, mutes, hidden items, re-pins
// and edits, in the order of the table.
var privateReads = []documentedRead{
	{
		"`ListFollowing` of the user", readFollowing(0), "dan:- cid:-", "dan:- cid:notify,favorite", "dan:- cid:notify,favorite",
		"the list without `settings`", "the list with `settings`", "the list with `settings`",
	},
	{
		"`ListFollowing` of the user, `only` favorites", readFollowing(skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE),
		"OTHER_USER", "cid:notify,favorite", "cid:notify,favorite",
		"refused", "the list", "the list",
	},
	{
		"`BatchGetRelationships` of the user to others", readRelationships, "OTHER_USER", "cid:notify,favorite eve:muted", "cid:notify,favorite eve:muted",
		"refused", "settings, and who is muted until when", "settings, and who is muted until when",
	},
	{
		"`ListMuted` of the user", readMuted, "OTHER_USER", "fay:until eve", "fay:until eve",
		"refused", "the list", "the list",
	},
	{
		"`BatchGetFollowCounts` of the user", readMutedCount, "0", "2", "2",
		"0 for `muted_count`", "the count", "the count",
	},
	{
		"`ListHidden` of the user", readHidden, "OTHER_USER", "i", "i",
		"refused", "the list", "the list",
	},
	{
		"`FilterSeen` of the user", readUnseen, "OTHER_USER", "j", "j",
		"refused", "hidden items count as seen", "hidden items count as seen",
	},
	{
		"`BatchGetViewerState` of the user", readHiddenState, "OTHER_USER", "hidden", "hidden",
		"refused", "`hidden` and the settings", "`hidden` and the settings",
	},
	{
		"`ReadFeed` of the user", readFeedOfBob(0), "OTHER_USER", "plain c", "plain c",
		"refused", "what the user sees", "what the user sees",
	},
	{
		"`ReadFeed` of the user, `only` favorites", readFeedOfBob(skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE), "OTHER_USER", "c", "c",
		"refused", "what the user sees", "what the user sees",
	},
	{
		"`ExplainPin` of the user, a pin of a hidden item", explainToBob("shows-i"), "OTHER_USER", "HIDDEN", "HIDDEN",
		"refused", "HIDDEN", "HIDDEN",
	},
	{
		"`ExplainPin` of the user, a re-pin of a muted user's pin", explainToBob("of-eve"), "OTHER_USER", "REPIN_OF_MUTED", "REPIN_OF_MUTED",
		"refused", "REPIN_OF_MUTED", "REPIN_OF_MUTED",
	},
	{
		"`ExplainPin` of the user, a re-pin of a pin whose owner blocks the user", explainToBob("of-gus"),
		"OTHER_USER", "REPIN_OF_UNAVAILABLE", "REPIN_OF_BLOCKED",
		"refused", "REPIN_OF_UNAVAILABLE", "REPIN_OF_BLOCKED",
	},
	{
		"`ListPins` of an owner, with re-pins and edits", readPinsOfDan, listOfDan, listOfDan, listOfDan,
		"the list with `repin_of`, edited attributes and `edit_time`", "the same", "the same",
	},
	{
		"`BatchGetPins` of a re-pin, and of an edited pin", readPinStates,
		"plain:new:edited of-gus:of gus", "plain:new:edited of-gus:of gus", "plain:new:edited of-gus:of gus",
		"`repin_of`, edited attributes and `edit_time`", "the same", "the same",
	},
}

// listOfDan is what everybody sees of the pins of dan, newest first.
const listOfDan = "of-gus:of gus of-eve:of eve shows-i plain:new:edited"

// settingsText returns the names of the settings that are on, or "-" if none is on.
func settingsText(s *skeinv1.FollowSettings) string {
	var names []string
	if s.GetHideRepins() {
		names = append(names, "hide_repins")
	}
	if s.GetNotify() {
		names = append(names, "notify")
	}
	if s.GetFavorite() {
		names = append(names, "favorite")
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ",")
}

func readFollowing(only skeinv1.FollowSetting) func(*world, string, string) (string, error) {
	return func(w *world, at, _ string) (string, error) {
		res, err := w.graph.ListFollowing(context.Background(), connect.NewRequest(&skeinv1.ListFollowingRequest{
			UserId: "bob", Only: only, AtLeast: at,
		}))
		if err != nil {
			return "", err
		}

		var follows []string
		for _, e := range res.Msg.GetEntries() {
			follows = append(follows, e.GetUserId()+":"+settingsText(e.GetSettings()))
		}
		return strings.Join(follows, " "), nil
	}
}

func readRelationships(w *world, at, _ string) (string, error) {
	res, err := w.graph.BatchGetRelationships(context.Background(), connect.NewRequest(&skeinv1.BatchGetRelationshipsRequest{
		ViewerId: "bob", UserIds: []string{"cid", "eve"}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}

	var relations []string
	for _, r := range res.Msg.GetRelationships() {
		if r.GetMuting() {
			relations = append(relations, r.GetUserId()+":muted")
			continue
		}
		relations = append(relations, r.GetUserId()+":"+settingsText(r.GetSettings()))
	}
	return strings.Join(relations, " "), nil
}

func readMuted(w *world, at, _ string) (string, error) {
	res, err := w.graph.ListMuted(context.Background(), connect.NewRequest(&skeinv1.ListMutedRequest{UserId: "bob", AtLeast: at}))
	if err != nil {
		return "", err
	}

	var users []string
	for _, e := range res.Msg.GetEntries() {
		if e.GetUntil() != nil {
			users = append(users, e.GetUserId()+":until")
			continue
		}
		users = append(users, e.GetUserId())
	}
	return strings.Join(users, " "), nil
}

func readMutedCount(w *world, at, _ string) (string, error) {
	res, err := w.graph.BatchGetFollowCounts(context.Background(), connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{
		UserIds: []string{"bob"}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}
	return fmt.Sprint(res.Msg.GetUsers()[0].GetMutedCount()), nil
}

func readHidden(w *world, at, _ string) (string, error) {
	res, err := w.seenClient.ListHidden(context.Background(), connect.NewRequest(&skeinv1.ListHiddenRequest{UserId: "bob", AtLeast: at}))
	if err != nil {
		return "", err
	}

	var items []string
	for _, e := range res.Msg.GetEntries() {
		items = append(items, e.GetItemId())
	}
	return strings.Join(items, " "), nil
}

func readUnseen(w *world, at, _ string) (string, error) {
	items := []string{"i", "j"}
	res, err := w.seenClient.FilterSeen(context.Background(), connect.NewRequest(&skeinv1.FilterSeenRequest{
		UserId: "bob", ItemIds: items, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}

	var unseen []string
	for _, i := range res.Msg.GetUnseenIndexes() {
		unseen = append(unseen, items[i])
	}
	return strings.Join(unseen, " "), nil
}

func readHiddenState(w *world, at, _ string) (string, error) {
	res, err := w.feed.BatchGetViewerState(context.Background(), connect.NewRequest(&skeinv1.BatchGetViewerStateRequest{
		ViewerId: "bob", Keys: []*skeinv1.ViewerStateKey{stateOfItem("i")}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}
	if !res.Msg.GetStates()[0].GetHidden() {
		return "", nil
	}
	return "hidden", nil
}

func readFeedOfBob(only skeinv1.FollowSetting) func(*world, string, string) (string, error) {
	return func(w *world, at, _ string) (string, error) {
		res, err := w.feed.ReadFeed(context.Background(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "bob", Only: only, AtLeast: at}))
		if err != nil {
			return "", err
		}
		return pinsText(res.Msg.GetEntries(), func(e *skeinv1.FeedEntry) string { return e.GetPinId() }), nil
	}
}

func explainToBob(pin string) func(*world, string, string) (string, error) {
	return func(w *world, at, _ string) (string, error) {
		res, err := w.feed.ExplainPin(context.Background(), connect.NewRequest(&skeinv1.ExplainPinRequest{
			ReaderId: "bob", Pin: pinNamed("dan", pin), AtLeast: at,
		}))
		if err != nil {
			return "", err
		}

		var reasons []string
		for _, r := range res.Msg.GetReasons() {
			reasons = append(reasons, strings.TrimPrefix(r.String(), "ABSENCE_REASON_"))
		}
		return strings.Join(reasons, " "), nil
	}
}

// pinShown is the part that the entry of a list and the state of a pin have in common.
type pinShown interface {
	GetPinId() string
	GetAttributes() []byte
	GetRepinOf() *skeinv1.Pin
}

// pinText describes a pin in the form of listOfDan.
func pinText(p pinShown, isEdited bool) string {
	text := p.GetPinId()
	if original := p.GetRepinOf(); original != nil {
		text += ":of " + original.GetOwnerId()
	}
	if isEdited {
		text += ":" + string(p.GetAttributes()) + ":edited"
	}
	return text
}

func pinsText[P any](pins []P, text func(P) string) string {
	var texts []string
	for _, p := range pins {
		texts = append(texts, text(p))
	}
	return strings.Join(texts, " ")
}

func readPinsOfDan(w *world, at, _ string) (string, error) {
	list := pinsOf("dan")
	list.AtLeast = at
	res, err := w.feed.ListPins(context.Background(), connect.NewRequest(list))
	if err != nil {
		return "", err
	}
	return pinsText(res.Msg.GetEntries(), func(e *skeinv1.FeedEntry) string { return pinText(e, e.GetEditTime() != nil) }), nil
}

func readPinStates(w *world, at, _ string) (string, error) {
	res, err := w.feed.BatchGetPins(context.Background(), connect.NewRequest(&skeinv1.BatchGetPinsRequest{
		Pins: []*skeinv1.Pin{pinNamed("dan", "plain"), pinNamed("dan", "of-gus")}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}
	return pinsText(res.Msg.GetPins(), func(p *skeinv1.PinState) string { return pinText(p, p.GetEditTime() != nil) }), nil
}

// TestPrivateReadsAreSeenAsDocumented walks the second table of docs/access.md, on one process and
// at each node of a cluster. bob follows cid and dan, mutes eve and fay, hides i, and is blocked by
// gus.
func TestPrivateReadsAreSeenAsDocumented(t *testing.T) {
	walkDocumentedReads(t, privateReads,
		follow("bob", "cid"),
		follow("bob", "dan"),
		setFollow("bob", "cid", &skeinv1.FollowSettings{Notify: true, Favorite: true}),
		mute("bob", "eve"),
		muteUntil("bob", "fay", time.Now().Add(24*time.Hour)),
		hidden("bob", "i"),
		block("gus", "bob"),

		pinned("cid", "", "c"),
		pinned("dan", "", "plain"),
		showing("dan", "shows-i", "i"),
		repinned("dan", "of-eve", "e", "eve", "e"),
		repinned("dan", "of-gus", "g", "gus", "g"),
		editedPin("dan", "plain", "new"),
	)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// tour makes calls, and prints each as a command that the reader can repeat.
type tour struct {
	url  string
	http *http.Client
	out  io.Writer
	// calls is the number of calls so far.
	calls int
}

// stop is one call of the tour.
type stop struct {
	// says explains the answer.
	says string
	// method and body are the call. POSITION in the body stands for the position of the last
	// publish, and TOMORROW for the time a day from now.
	method, body string
	// want is a text that the answer must contain. Otherwise the tour fails: its explanation would
	// be wrong.
	want string
	// lacks is a text that the answer must not contain; empty disables the check.
	lacks string
	// refused reports whether the stop shows a call that must fail.
	refused bool
}

var stops = []stop{
	{
		says:   "The home feed of ada: what those whom ada follows pinned, newest first. greta's garden, which ada excludes, is not in it.",
		method: "FeedService/ReadFeed",
		body:   `{"readerId":"ada","pageSize":3}`,
		want:   `"pinId":"crust"`,
		lacks:  `"hugo"`,
	},
	{
		says:   "ada follows hugo: one event. It is on disk when the answer comes, and with VISIBLE every read shows it.",
		method: "EventService/Publish",
		body:   `{"events":[{"userFollowed":{"userId":"ada","targetUserId":"hugo"}}],"wait":"PUBLISH_WAIT_VISIBLE"}`,
		want:   `"acceptedCount":1`,
	},
	{
		says:   "The feed again: hugo's pins are in it, the older ones too, each where its time puts it.",
		method: "FeedService/ReadFeed",
		body:   `{"readerId":"ada","pageSize":3}`,
		want:   `"pinId":"frame-1952"`,
	},
	{
		says:   "Read your own write without waiting: atLeast makes an answer contain that follow, however the service is loaded.",
		method: "GraphService/CheckFollows",
		body: `{"pairs":[{"userId":"ada","targetUserId":"hugo"},{"userId":"hugo","targetUserId":"zoe"}],"includeTimes":true,` +
			`"atLeast":"POSITION"}`,
		want: `["FOLLOW_KIND_EXPLICIT","FOLLOW_KIND_NONE"]`,
	},
	{
		says:   "Whom ada follows, newest first. mina is followed implicitly: ada follows one of mina's boards only.",
		method: "GraphService/ListFollowing",
		body:   `{"userId":"ada","pageSize":3}`,
		want:   `"FOLLOW_KIND_IMPLICIT"`,
	},
	{
		says:   "Boards: synths is followed by itself; of greta everything appears but the garden, which ada excludes.",
		method: "GraphService/CheckFollows",
		body: `{"pairs":[{"userId":"ada","board":{"ownerId":"mina","boardId":"synths"}},` +
			`{"userId":"ada","board":{"ownerId":"greta","boardId":"sourdough"}},` +
			`{"userId":"ada","board":{"ownerId":"greta","boardId":"garden"}}]}`,
		want: `["FOLLOW_KIND_BOARD","FOLLOW_KIND_EXPLICIT","FOLLOW_KIND_EXCLUDED"]`,
	},
	{
		says:   "Which of these does ada follow? Indexes of those that match; for a page of results, one call.",
		method: "GraphService/FilterFollowed",
		body:   `{"viewerId":"ada","userIds":["zoe","noor","uma","kaia","mina","pablo"]}`,
		want:   `[1,3,4]`,
	},
	{
		says:   "Which of these has ada not seen? Answered from what ada played, and what ada was shown, of ten thousand candidates as of four.",
		method: "SeenService/FilterSeen",
		body:   `{"userId":"ada","itemIds":["saturn","frame-1952","crust","rokkaku"]}`,
		want:   `"unseenIndexes":[0,2,3]`,
	},
	{
		says:   "The feed without what ada has seen.",
		method: "FeedService/ReadFeed",
		body:   `{"readerId":"ada","pageSize":2,"hideSeen":true}`,
		want:   `"FEED_COMPLETENESS_COMPLETE"`,
		lacks:  `"frame-1952"`,
	},
	{
		says:   "ada makes noor a favorite, and wants no re-pins of noor. The settings of a follow are private to the follower.",
		method: "EventService/Publish",
		body: `{"events":[{"followSettingsSet":{"userId":"ada","targetUserId":"noor","favorite":true,"hideRepins":true}}],` +
			`"wait":"PUBLISH_WAIT_VISIBLE"}`,
		want: `"acceptedCount":1`,
	},
	{
		says:   "The feed of the favorites alone: it has saturn, and no re-pin of noor.",
		method: "FeedService/ReadFeed",
		body:   `{"readerId":"ada","only":"FOLLOW_SETTING_FAVORITE"}`,
		want:   `"pinId":"saturn"`,
		lacks:  `"repinOf"`,
	},
	{
		says:   "ada mutes kaia for a day, and hides the item saturn for good. kaia and noor learn nothing of it.",
		method: "EventService/Publish",
		body: `{"events":[{"userMuted":{"userId":"ada","targetUserId":"kaia","until":"TOMORROW"}},` +
			`{"itemHidden":{"userId":"ada","itemId":"saturn"}}],"wait":"PUBLISH_WAIT_VISIBLE"}`,
		want: `"acceptedCount":2`,
	},
	{
		says:   "Whom ada mutes: kaia until tomorrow, and chen for as long as ada likes.",
		method: "GraphService/ListMuted",
		body:   `{"userId":"ada"}`,
		want:   `"until":"`,
	},
	{
		says:   "Why is a pin not in a feed? Here, because ada hides its item, whoever pins it.",
		method: "FeedService/ExplainPin",
		body:   `{"readerId":"ada","pin":{"ownerId":"noor","pinId":"saturn"}}`,
		want:   `["ABSENCE_REASON_HIDDEN"]`,
	},
	{
		says:   "What is hot with greta. Every play, like and re-pin heats an item, and old ones count for less.",
		method: "CounterService/ListTrending",
		body:   `{"ownerId":"greta","pageSize":2}`,
		want:   `"itemId":"crust"`,
	},
	{
		says:   "A block ends follows in both directions, in the same event.",
		method: "EventService/Publish",
		body:   `{"events":[{"userBlocked":{"userId":"ada","targetUserId":"sven"}}],"wait":"PUBLISH_WAIT_VISIBLE"}`,
		want:   `"acceptedCount":1`,
	},
	{
		says:   "Everything between ada and three others: one followed, one muted, one blocked just now.",
		method: "GraphService/BatchGetRelationships",
		body:   `{"viewerId":"ada","userIds":["greta","chen","sven"]}`,
		want:   `"blocking":true`,
	},
	{
		says:   "Counts are the lengths of the lists, always. Each costs the same for ten followers and ten million.",
		method: "GraphService/BatchGetFollowCounts",
		body:   `{"userIds":["greta"],"boards":[{"ownerId":"greta","boardId":"garden"}]}`,
		want:   `"excluderCount":1`,
	},
	{
		says:   "Plays of an item, and reactions to it by kind. Kinds are what the product chooses; each count is exact.",
		method: "CounterService/BatchGetCounters",
		body:   `{"keys":[{"itemId":"crust"},{"userId":"greta"}]}`,
		want:   `"reactions":[{"kind":"like","count":3},{"kind":"save","count":2}]`,
	},
	{
		says:   "Who saved it, as ada sees it: two did, and ada blocks one of them.",
		method: "CounterService/ListReactors",
		body:   `{"itemId":"crust","kind":"save","viewerId":"ada"}`,
		want:   `"totalSize":2`,
		lacks:  `"ivan"`,
	},
	{
		says:   "A bookmark. A kind that begins with _ is private: only ada can list it, and nothing counts it.",
		method: "CounterService/ListReactions",
		body:   `{"userId":"ada","kind":"_bookmark"}`,
		want:   `"itemId":"rokkaku"`,
	},
	{
		says:   "The notifications of ada: one group for each kind, pin and day. Whom ada mutes or blocks is left out: chen, kaia and ivan.",
		method: "NotificationService/ReadNotifications",
		body:   `{"userId":"ada","pageSize":2}`,
		want:   `"kind":"NOTIFICATION_KIND_REACTED","pin":{"ownerId":"ada","pinId":"window-seat"}`,
		lacks:  `"chen"`,
	},
	{
		says:   "noor reacts to a pin of ada. The reaction is to the item; the pin that it names says whom to notify.",
		method: "EventService/Publish",
		body: `{"events":[{"reacted":{"userId":"noor","itemId":"night-train","kind":"wow","pin":{"ownerId":"ada","pinId":"night-train"}}}],` +
			`"wait":"PUBLISH_WAIT_VISIBLE"}`,
		want: `"acceptedCount":1`,
	},
	{
		says:   "The badge: how many groups ada has not seen. The event notifications_seen clears it on all devices of ada.",
		method: "NotificationService/CountNotifications",
		body:   `{"userId":"ada"}`,
		want:   `"count":`,
		lacks:  `"count":0`,
	},
	{
		says:   "The followers of greta whom ada follows: what a profile shows as \"followed by hugo, mina and others\".",
		method: "GraphService/ListMutuals",
		body:   `{"viewerId":"ada","userId":"greta","pageSize":2}`,
		want:   `"userId":"mina"`,
	},
	{
		says:    "A mistake gets a reason for programs and a sentence for people. Nothing of the call was taken.",
		method:  "EventService/Publish",
		body:    `{"events":[{"userFollowed":{"userId":"ada","targetUserId":"ada"}}]}`,
		want:    `"SELF_RELATION"`,
		refused: true,
	},
	{
		says:   "How the service is: the log, and every projection that is folded from it.",
		method: "AdminService/GetStatus",
		body:   `{}`,
		want:   `"PROJECTION_STATE_READY"`,
	},
}

// makeAllCalls makes the calls of the tour, one after the other.
func (t *tour) makeAllCalls(ctx context.Context) error {
	position := ""
	for _, s := range stops {
		s.body = strings.ReplaceAll(s.body, "POSITION", position)
		s.body = strings.ReplaceAll(s.body, "TOMORROW", time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
		answer, err := t.makeCall(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.method, err)
		}
		var published struct {
			Position string `json:"position"`
		}
		if err := json.Unmarshal(answer, &published); err == nil && published.Position != "" {
			position = published.Position
		}
	}
	return nil
}

// makeCall makes one call and prints it.
func (t *tour) makeCall(ctx context.Context, s stop) ([]byte, error) {
	t.calls++
	target := t.url + "/skein.v1." + s.method
	fmt.Fprintf(t.out, "\n%d. %s\n$ curl -s %s -H 'Content-Type: application/json' -d '%s'\n", t.calls, s.says, target, s.body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(s.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, fmt.Errorf("%s: %q: %w", res.Status, data, err)
	}
	t.printAnswer(compact.Bytes())
	wasRefused := res.StatusCode != http.StatusOK
	if wasRefused != s.refused || !bytes.Contains(compact.Bytes(), []byte(s.want)) {
		return nil, fmt.Errorf("%s, and no %s in the answer", res.Status, s.want)
	}
	if s.lacks != "" && bytes.Contains(compact.Bytes(), []byte(s.lacks)) {
		return nil, fmt.Errorf("%s is in the answer", s.lacks)
	}
	return compact.Bytes(), nil
}

// maxLineBytes is the longest answer, in bytes, that is printed in one line.
const maxLineBytes = 160

// printAnswer prints an answer, over several lines if it is long.
func (t *tour) printAnswer(answer []byte) {
	var pretty bytes.Buffer
	if len(answer) <= maxLineBytes || json.Indent(&pretty, answer, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(answer)
	}
	pretty.WriteByte('\n')
	_, _ = pretty.WriteTo(t.out) // a closed output does not stop the demo
}

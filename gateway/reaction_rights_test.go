package gateway

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/access"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// documentedRead is a row of a table in docs/access.md. The table says what each caller sees of
// what bob, the user, did.
type documentedRead struct {
	// row is the first column of the table.
	row string
	// read returns what a caller sees, as a text. self is the user of the caller, empty for the
	// application.
	read func(w *world, at, self string) (string, error)
	// stranger, user and application are what these callers see: a text, or the reason of an error.
	stranger, user, application string
	// strangerDoc, userDoc and applicationDoc are the other columns of the table.
	strangerDoc, userDoc, applicationDoc string
}

// reactionReads are the rows of the table about reactions, in the order of the table.
var reactionReads = []documentedRead{
	{
		"`ListReactions` of the user, a kind such as `save`", readReactionsOfBob("save"), "i", "i", "i",
		"the list", "the list", "the list",
	},
	{
		"`ListReactions` of the user, a private kind", readReactionsOfBob("_bookmark"), "OTHER_USER", "i", "i",
		"refused", "the list", "the list",
	},
	{
		"`ListReactors` of an item, a kind such as `save`", readReactorsOfItem("save"), "cid", "bob", "cid bob",
		"the list without those whom a block separates from the stranger", "the same for the user", "the list, or as `viewer_id` sees it",
	},
	{
		"`ListReactors` of an item, a private kind", readReactorsOfItem("_bookmark"), "INVALID_FIELD", "INVALID_FIELD", "INVALID_FIELD",
		"refused", "refused", "refused",
	},
	{
		"`BatchGetCounters` of an item", readKindsOfItem, "like=1 save=2", "like=1 save=2", "like=1 save=2",
		"kinds that are not private", "kinds that are not private", "kinds that are not private",
	},
	{
		"`BatchGetViewerState` of the user", readStateOfBob, "OTHER_USER", "_bookmark like save", "_bookmark like save",
		"refused", "all kinds", "all kinds",
	},
}

func readReactionsOfBob(kind string) func(*world, string, string) (string, error) {
	return func(w *world, at, _ string) (string, error) {
		res, err := w.counterClient.ListReactions(context.Background(), connect.NewRequest(&skeinv1.ListReactionsRequest{
			UserId: "bob", Kind: kind, AtLeast: at,
		}))
		if err != nil {
			return "", err
		}

		var items []string
		for _, e := range res.Msg.GetEntries() {
			items = append(items, e.GetItemId())
		}
		return strings.Join(items, " "), nil
	}
}

func readReactorsOfItem(kind string) func(*world, string, string) (string, error) {
	return func(w *world, at, self string) (string, error) {
		res, err := w.counterClient.ListReactors(context.Background(), connect.NewRequest(&skeinv1.ListReactorsRequest{
			ItemId: "i", Kind: kind, ViewerId: self, AtLeast: at,
		}))
		if err != nil {
			return "", err
		}

		var users []string
		for _, e := range res.Msg.GetEntries() {
			users = append(users, e.GetUserId())
		}
		return strings.Join(users, " "), nil
	}
}

func readKindsOfItem(w *world, at, _ string) (string, error) {
	res, err := w.counterClient.BatchGetCounters(context.Background(), connect.NewRequest(&skeinv1.BatchGetCountersRequest{
		Keys: []*skeinv1.CounterKey{countsOfItem("i")}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}

	var counts []string
	for _, c := range res.Msg.GetCounters()[0].GetReactions() {
		counts = append(counts, fmt.Sprintf("%s=%d", c.GetKind(), c.GetCount()))
	}
	return strings.Join(counts, " "), nil
}

func readStateOfBob(w *world, at, _ string) (string, error) {
	res, err := w.feed.BatchGetViewerState(context.Background(), connect.NewRequest(&skeinv1.BatchGetViewerStateRequest{
		ViewerId: "bob", Keys: []*skeinv1.ViewerStateKey{stateOfItem("i")}, AtLeast: at,
	}))
	if err != nil {
		return "", err
	}
	return strings.Join(res.Msg.GetStates()[0].GetReactions(), " "), nil
}

// TestReactionsAreSeenAsDocumented walks the table of docs/access.md, on one process and at each
// node of a cluster. bob blocks ann, the stranger, and cid blocks bob.
func TestReactionsAreSeenAsDocumented(t *testing.T) {
	walkDocumentedReads(t, reactionReads,
		reacted("bob", "i", "save"), reacted("bob", "i", "_bookmark"), liked("bob", "i"), reacted("cid", "i", "save"),
		block("bob", "ann"), block("cid", "bob"),
	)
}

// walkDocumentedReads publishes events and lets the three callers make each read, on one process
// and at each node of a cluster. It compares what they see with the rows, and the rows with
// docs/access.md. ann is the stranger, and bob the user.
func walkDocumentedReads(t *testing.T, rows []documentedRead, evs ...*skeinv1.Event) {
	t.Helper()
	page, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		documented := fmt.Sprintf("| %s | %s | %s | %s |", r.row, r.strangerDoc, r.userDoc, r.applicationDoc)
		if !strings.Contains(string(page), documented) {
			t.Errorf("docs/access.md lacks the row %s", documented)
		}
	}

	g := guardFiles(t)
	bobToken := g.addToken(t, "bob")
	c := newCluster(t, 3, withAllStores, func(o *worldOptions) { g.options(t, o) })
	asCaller := func(w *world, token string) *world { return (&guarded{world: w}).as(token) }
	at := asCaller(c.whole, g.tokens["publisher"]).publish(evs...)

	for i, w := range append([]*world{c.whole}, c.nodes...) {
		process := "one process"
		if i > 0 {
			process = fmt.Sprint("node ", i)
		}
		t.Run(process, func(t *testing.T) {
			for _, r := range rows {
				for _, caller := range []struct{ name, token, self, want string }{
					{"stranger", g.tokens["ann"], "ann", r.stranger},
					{"user", bobToken, "bob", r.user},
					{"application", g.tokens["reader"], "", r.application},
				} {
					got, err := r.read(asCaller(w, caller.token), at, caller.self)
					if err != nil {
						got = detailsOf(t, err).reason
					}
					if got != caller.want {
						t.Errorf("%s by the %s: got %q, want %q", r.row, caller.name, got, caller.want)
					}
				}
			}
		})
	}
}

// addToken adds a token that is bound to a user.
func (g *guarded) addToken(t *testing.T, user string) (token string) {
	t.Helper()
	token, line, err := access.NewToken(access.Caller{Name: user, Roles: access.AllRoles, User: user}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	g.lines[user] = line
	g.writeTokens(t)
	return token
}

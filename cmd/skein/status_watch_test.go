package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestStatusScreenShowsRatesBetweenScrapes demands that the screen shows what happened between two
// scrapes of a service.
func TestStatusScreenShowsRatesBetweenScrapes(t *testing.T) {
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	mustPublish(t, api, userFollowed("ann", "bob"))
	waitUntilFolded(t, api, 1)
	from, err := statuscmd.Scrape(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		mustPublish(t, api, userFollowed("ann", fmt.Sprint("user", n)), userFollowed("cid", fmt.Sprint("user", n)))
	}
	_, err = api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatal(err)
	}
	waitUntilFolded(t, api, 11)
	to, err := statuscmd.Scrape(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	to.Time = from.Time.Add(2 * time.Second) // make the rates independent of the machine
	text := statuscmd.Screen("http://x", from, to)

	for _, part := range []string{
		"(over 2.0 s)", "calls      5.5/s, 0 under way, 0 watching; INVALID_FIELD 0.5/s\n",
		"\nEventService/Publish       5        ", "\nGraphService/CheckFollows  0.5      ",
		"publish    10 events/s in 5 envelopes/s, on disk in ", ", read by 1\n", "\ngraph          ready  0                 0s   10  ",
		"caches     blocks ", "feeds      0 pages/s", " free, ", "process    ",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

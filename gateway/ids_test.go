package gateway

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestIDsAreWhatPeopleType checks that ids with joiners, tags and variation selectors come back
// unchanged from every store, also through page tokens, in binary and in JSON.
func TestIDsAreWhatPeopleType(t *testing.T) {
	const (
		persian   = "علی\u200cرضا"
		malayalam = "നന്\u200dമ"
		family    = "👩\u200d👩\u200d👧\u200d👦"
		england   = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
	)
	for encoding, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}} {
		t.Run(encoding, func(t *testing.T) {
			w := newWorld(t, withAllStores)
			w.connect(options...)
			at := w.publish(
				follow(persian, malayalam), follow(family, malayalam), follow(england, malayalam), pinned(malayalam, family, england),
				pinned(malayalam, family, family), liked(persian, england), played(persian, family),
			)

			var followers []string
			for token := ""; ; {
				page := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{
					UserId: malayalam, PageSize: 1, PageToken: token, AtLeast: at,
				})
				for _, e := range page.GetEntries() {
					followers = append(followers, e.GetUserId())
				}
				token = page.GetNextPageToken()
				if token == "" {
					break
				}
			}
			if diff := cmp.Diff([]string{england, family, persian}, followers); diff != "" {
				t.Errorf("followers (-want +got):\n%s", diff)
			}

			// The reader has played one of the two pins.
			feed := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: persian, HideSeen: true, AtLeast: at}).GetEntries()
			if len(feed) != 1 || feed[0].GetOwnerId() != malayalam || feed[0].GetBoardId() != family || feed[0].GetPinId() != england {
				t.Errorf("feed: got %v, want the pin %q alone", feed, england)
			}
		})
	}
}

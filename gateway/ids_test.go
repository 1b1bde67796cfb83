package gateway

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestIDsAreWhatPeopleType: names with joiners, tags and variation selectors go through every store
// and back, also through page tokens, in binary and in JSON.
func TestIDsAreWhatPeopleType(t *testing.T) {
	persian, malayalam := "علی\u200cرضا", "നന്\u200dമ"
	family, england := "👩\u200d👩\u200d👧\u200d👦", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
	for name, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
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
				if token = page.GetNextPageToken(); token == "" {
					break
				}
			}
			if diff := cmp.Diff([]string{england, family, persian}, followers); diff != "" {
				t.Errorf("followers (-want +got):\n%s", diff)
			}

			feed := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: persian, HideSeen: true, AtLeast: at}).GetEntries()
			if len(feed) != 1 || feed[0].GetOwnerId() != malayalam || feed[0].GetBoardId() != family || feed[0].GetPinId() != england {
				t.Errorf("the feed is %v, want the pin %q alone", feed, england)
			}
		})
	}
}

package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/pagetoken"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestErrorTextsSayWhatIsWanted checks the full texts of errors, as clients get them. They say what
// would be valid.
func TestErrorTextsSayWhatIsWanted(t *testing.T) {
	const (
		publish       = connectv1.EventServicePublishProcedure
		watch         = connectv1.EventServiceWatchProcedure
		followers     = connectv1.GraphServiceListFollowersProcedure
		boards        = connectv1.GraphServiceListBoardFollowersProcedure
		filter        = connectv1.GraphServiceFilterFollowedProcedure
		check         = connectv1.GraphServiceCheckFollowsProcedure
		relationships = connectv1.GraphServiceBatchGetRelationshipsProcedure
		feed          = connectv1.FeedServiceReadFeedProcedure
		pins          = connectv1.FeedServiceListPinsProcedure
		status        = connectv1.AdminServiceGetStatusProcedure
		snapshot      = connectv1.AdminServiceTakeSnapshotProcedure
		rebuild       = connectv1.AdminServiceStartRebuildProcedure
	)
	w := newWorld(t, withFeeds, withOperator(&notebook{}))
	type errorCase struct{ procedure, body, want string }
	for name, cases := range map[string][]errorCase{
		"enums": {
			{followers, `{"userId":"bob","kind":"SIDEWAYS"}`, `kind must be FOLLOW_KIND_EXPLICIT or FOLLOW_KIND_IMPLICIT, not "SIDEWAYS"`},
			{followers, `{"userId":"bob","kind":true}`, `kind must be FOLLOW_KIND_EXPLICIT or FOLLOW_KIND_IMPLICIT, not true`},
			{followers, `{"userId":"bob","kind":3}`, `kind must be FOLLOW_KIND_EXPLICIT or FOLLOW_KIND_IMPLICIT`},
			{feed, `{"readerId":"bob","order":"OLD"}`, `order must be FEED_ORDER_NEWEST or FEED_ORDER_TRENDING, not "OLD"`},
			{feed, `{"readerId":"bob","order":77}`, `order must be FEED_ORDER_NEWEST or FEED_ORDER_TRENDING`},
			{
				boards, `{"board":{"ownerId":"bob"},"kind":9}`,
				`kind must be BOARD_FOLLOWER_KIND_ALL, BOARD_FOLLOWER_KIND_EXPLICIT or BOARD_FOLLOWER_KIND_EXCLUDERS`,
			},
			{
				filter, `{"viewerId":"v","userIds":["a"],"direction":9}`,
				`direction must be FOLLOW_DIRECTION_FOLLOWING, FOLLOW_DIRECTION_FOLLOWED_BY or FOLLOW_DIRECTION_MUTUAL`,
			},
			{
				filter, `{"viewerId":"v","boards":[{"ownerId":"a"}],"direction":2}`,
				`direction must be FOLLOW_DIRECTION_FOLLOWING for boards: boards follow nobody`,
			},
			{publish, `{"wait":"SOON"}`, `wait must be PUBLISH_WAIT_LOGGED or PUBLISH_WAIT_VISIBLE, not "SOON"`},
			{
				publish, `{"events":[{"eventId":"x"}]}`,
				`events[0].kind must be given by one field of Event that this version knows, such as user_followed`,
			},
		},
		"values of JSON": {
			{
				publish, `{"events":[{},{"pinCreated":{"pin":{"ownerId":"a","pinId":"p"},"attributes":"{\"a\":1}"}}]}`,
				`events[1].pin_created.attributes must be base64, in which {"a":1} is "eyJhIjoxfQ=="`,
			},
			{
				publish, `{"events":[{"occurredAt":"yesterday"}]}`,
				`events[0].occurred_at must be a time as in "2026-01-31T12:00:00Z" (RFC 3339), not "yesterday"`,
			},
			{publish, `{"events":{}}`, `events must be a JSON array`},
			{publish, `{"events":["x"]}`, `events[0] must be a JSON object`},
			{publish, `{"allowPartial":"yes"}`, `allow_partial must be true or false`},
			{publish, `{"events":[{"offset":-1}]}`, `events[0].offset must be a whole number of type uint64, not -1`},
			{followers, `{"userId":7}`, `user_id must be a JSON string`},
			{followers, `{"pageSize":1.5}`, `page_size must be a whole number of type int32, not 1.5`},
			{followers, `{"userid":"bob","kind":"SIDEWAYS"}`, `the body is no skein.v1.ListFollowersRequest: (line 1:2): unknown field "userid"`},
			{followers, ``, `the body is no skein.v1.ListFollowersRequest: an empty body is no JSON object`},
		},
		"missing values": {
			{followers, `{}`, `user_id must not be empty: 1 to 128 bytes`},
			{check, `{"pairs":[{"targetUserId":"b"}]}`, `pairs[0].user_id must not be empty: 1 to 128 bytes`},
			{relationships, `{"viewerId":"v","userIds":["","x"]}`, `user_ids[0] must not be empty: 1 to 128 bytes`},
			{relationships, `{"viewerId":"v"}`, `user_ids has 0 items: must have 1 to 100`},
			{pins, `{}`, `target must be given: owner_id or board`},
			{boards, `{}`, `board is required`},
			{snapshot, `{"projections":["graph",""]}`, `projections[1] must not be empty: 1 to 64 bytes`},
			{snapshot, `{"name":"A B"}`, "name must match ^([a-z0-9][a-z0-9._-]{0,127})?$"},
		},
		"numbers": {
			{followers, `{"userId":"bob","pageSize":-1}`, "page_size is -1: must be at least 0"},
			{rebuild, `{"projection":"graph","share":2}`, "share is 2: must be at least 0 and at most 1"},
			{rebuild, `{"projection":"graph","partitions":[3,256]}`, "partitions[1] is 256: must be at most 255"},
		},
		"tokens and positions": {
			{
				followers, `{"userId":"bob","pageToken":"abc"}`,
				`page_token is damaged: send the next_page_token of the page before exactly as it came, with the same parameters, or nothing to begin again`,
			},
			{
				followers, `{"userId":"bob","pageToken":"` + w.server.views.Keys.Sign(pagetoken.Token{}) + `"}`,
				`page_token belongs to another list, or to the same list with other parameters: ` +
					`send the next_page_token of the page before exactly as it came, with the same parameters, or nothing to begin again`,
			},
			{
				feed, `{"readerId":"bob","newerThan":"abc"}`,
				`newer_than is damaged: send the newest_token of an earlier page exactly as it came, with the same parameters, or nothing to begin again`,
			},
			{
				status, `{"pageToken":"abc"}`,
				`page_token is damaged: send the next_page_token of the page before exactly as it came, with the same parameters, or nothing to begin again`,
			},
			{feed, `{"readerId":"bob","atLeast":"zz"}`, `at_least is no position: send the position of an answer exactly as it came`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				status, _, body := w.post(c.procedure, "application/json", strings.NewReader(c.body))
				if status != http.StatusBadRequest {
					t.Errorf("%s with %s: got status %d, want 400", c.procedure, c.body, status)
				}
				// In its errors, protobuf has a space in some builds and a no-break space in
				// others, so that nobody relies on their texts.
				got := strings.ReplaceAll(parseError(t, body).Message, "\u00a0", " ")
				if got != c.want {
					t.Errorf("%s with %s:\n got %s\nwant %s", c.procedure, c.body, got, c.want)
				}
			}
		})
	}

	t.Run("streams", func(t *testing.T) {
		// A stream has its error in its last frame. The request is a frame of 0x14 bytes.
		_, _, body := w.post(watch, "application/connect+json", strings.NewReader("\x00\x00\x00\x00\x14"+`{"kinds":["follow"]}`))
		for _, want := range []string{`kinds[0] must be user_followed, user_unfollowed, `, ` not \"follow\"`} {
			if !strings.Contains(string(body), want) {
				t.Errorf("got %s, want %s in it", body, want)
			}
		}
	})
}

// TestUnknownContentTypeGetsAnErrorText checks that a call with any Content-Type gets an error that
// says which ones are valid.
func TestUnknownContentTypeGetsAnErrorText(t *testing.T) {
	w := newWorld(t)
	const (
		unary  = "Content-Type must be application/json or application/proto, or one of gRPC: application/grpc, application/grpc-web; it is "
		stream = "Content-Type must be application/connect+json or application/connect+proto, or one of gRPC: application/grpc, application/grpc-web; it is "

		check = connectv1.GraphServiceCheckFollowsProcedure
		watch = connectv1.EventServiceWatchProcedure
	)
	for _, c := range []struct{ procedure, contentType, want string }{
		{check, "text/plain", unary + `"text/plain"`},
		{check, "application/x-www-form-urlencoded", unary + `"application/x-www-form-urlencoded"`},
		{check, "", unary + `""`},
		{check, "application/json; charset=latin1", unary + `"application/json; charset=latin1"`},
		{check, "application/grpc+thrift", unary + `"application/grpc+thrift"`},
		{watch, "application/json", stream + `"application/json"`},
		{watch, "application/proto", stream + `"application/proto"`},
	} {
		t.Run(c.procedure+" as "+c.contentType, func(t *testing.T) {
			status, header, body := w.post(c.procedure, c.contentType, strings.NewReader("{}"))
			if status != http.StatusUnsupportedMediaType {
				t.Errorf("got status %d, want 415", status)
			}
			if got := header.Get("Content-Type"); got != "application/json" {
				t.Errorf("got the Content-Type %q, want application/json", got)
			}
			e := parseError(t, body)
			if e.Code != "invalid_argument" || e.reason() != "INVALID_FIELD" {
				t.Errorf("got %s with %s, want invalid_argument with INVALID_FIELD", e.Code, e.reason())
			}
			if e.Message != c.want {
				t.Errorf("\n got %s\nwant %s", e.Message, c.want)
			}
		})
	}

	t.Run("GET with an unknown encoding", func(t *testing.T) {
		status, _, body := w.get(check + "?connect=v1&encoding=xml&message=%7B%7D")
		if status != http.StatusUnsupportedMediaType {
			t.Errorf("got status %d, want 415", status)
		}
		const want = "request by GET must have encoding=json or encoding=proto in its query, and no body"
		if got := parseError(t, body).Message; got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	})
}

package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// post sends a body with further headers, given as names and values in turn. It returns the status,
// the headers and the body of the answer.
func (w *world) post(procedure, contentType string, body io.Reader, headers ...string) (int, http.Header, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+procedure, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return w.do(req)
}

// get returns the status, the headers and the body of the answer to a GET request.
func (w *world) get(path string) (int, http.Header, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.do(req)
}

// do returns the status, the headers and the body of the answer to a request.
func (w *world) do(req *http.Request) (int, http.Header, []byte) {
	w.t.Helper()
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, res.Header, body
}

// jsonError is an error of the Connect protocol.
type jsonError struct {
	Code, Message string
	Details       []struct {
		Type  string
		Debug map[string]any
	}
}

// reason returns the reason in the details of the error, or "".
func (e jsonError) reason() string {
	for _, d := range e.Details {
		if d.Type == "google.rpc.ErrorInfo" {
			reason, _ := d.Debug["reason"].(string)
			return reason
		}
	}
	return ""
}

func parseError(t testing.TB, body []byte) (e jsonError) {
	t.Helper()
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("parse the error %s: %v", body, err)
	}
	return e
}

// TestJSONAnswersHaveDefaultValues checks the shape of answers in JSON. Default values are written,
// so that clients see, for example, that the answer is no.
func TestJSONAnswersHaveDefaultValues(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	w.caughtUp(at)
	for _, c := range []struct{ name, procedure, body, want string }{
		{
			"CheckFollows", connectv1.GraphServiceCheckFollowsProcedure,
			`{"pairs":[{"userId":"ann","targetUserId":"bob"},{"user_id":"bob","target_user_id":"ann"}],"atLeast":"` + at + `"}`,
			`{"kinds":["FOLLOW_KIND_EXPLICIT","FOLLOW_KIND_NONE"],"followTimes":[],"position":"` + at + `"}`,
		},
		{
			"FilterFollowed", connectv1.GraphServiceFilterFollowedProcedure, `{"viewerId":"bob","userIds":["ann"]}`,
			`{"indexes":[],"position":"` + at + `"}`,
		},
		{
			"BatchGetRelationships", connectv1.GraphServiceBatchGetRelationshipsProcedure, `{"viewerId":"bob","userIds":["cid"]}`,
			`{"relationships":[{"userId":"cid","following":"FOLLOW_KIND_NONE","followedBy":"FOLLOW_KIND_NONE",` +
				`"blocking":false,"blockedBy":false,"muting":false}],"position":"` + at + `"}`,
		},
		{
			"ListFollowers", connectv1.GraphServiceListFollowersProcedure, `{"userId":"nobody"}`,
			`{"entries":[],"nextPageToken":"","totalSize":0,"position":"` + at + `"}`,
		},
		{
			"Publish", connectv1.EventServicePublishProcedure,
			`{"events":[{"userFollowed":{"userId":"x","targetUserId":"x"}}],"allowPartial":true}`,
			`{"position":"","acceptedCount":0,"eventIds":[""],"rejections":[{"index":0,"reason":"REASON_SELF_RELATION",` +
				`"field":"user_followed.target_user_id",` +
				`"message":"user_followed.target_user_id must not be the acting user: nobody follows, blocks or mutes themselves"}],` +
				`"repeatedIndexes":[],"repeatsKnown":false}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want any
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"} {
				status, _, body := w.post(c.procedure, contentType, strings.NewReader(c.body))
				var got any
				if err := json.Unmarshal(body, &got); err != nil {
					t.Fatalf("%s: got the answer %s: %v", contentType, body, err)
				}
				if diff := cmp.Diff(want, got); diff != "" || status != http.StatusOK {
					t.Errorf("%s: got status %d, want 200, and the answer (-want +got):\n%s", contentType, status, diff)
				}
			}
		})
	}
}

// TestMethodsWithoutSideEffectsAnswerGET checks that methods without side effects, and no others,
// answer GET requests, and that caches do not store the answers.
func TestMethodsWithoutSideEffectsAnswerGET(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	query := "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"userId":"bob","atLeast":"`+at+`"}`)
	status, header, body := w.get(connectv1.GraphServiceListFollowersProcedure + query)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"ann"`)) || header.Get("Cache-Control") != "no-store" {
		t.Errorf("ListFollowers by GET: got %d %s with %v, want 200 with ann and no-store", status, body, header)
	}
	status, header, body = w.get(connectv1.GraphServiceListFollowersProcedure + "?connect=v1&encoding=json&message=%7B%7D")
	if status != http.StatusBadRequest || parseError(t, body).reason() != "INVALID_FIELD" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("ListFollowers of nobody by GET: got %d %s with %v, want 400 with INVALID_FIELD and no-store", status, body, header)
	}
	status, _, _ = w.get(connectv1.EventServicePublishProcedure + query)
	if status != http.StatusMethodNotAllowed {
		t.Errorf("Publish by GET: got status %d, want 405", status)
	}

	// The client of Connect can send GET requests as well.
	w.connect(connect.WithHTTPGet())
	res := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	if len(res.GetEntries()) != 1 {
		t.Errorf("ListFollowers by the client: got %v, want one follower", res)
	}

	// Watch is a stream that pages in a browser read by GET (see TestEventsOfLog).
	for _, service := range services() {
		for i := range service.Methods().Len() {
			procedure := fmt.Sprintf("/%s/%s", service.FullName(), service.Methods().Get(i).Name())
			if procedure == connectv1.EventServiceWatchProcedure {
				continue
			}
			status, _, _ := w.get(procedure + "?connect=v1&encoding=json&message=%7B%7D")
			wantAllowed := strings.Contains(fmt.Sprint(service.Methods().Get(i).Options()), "NO_SIDE_EFFECTS")
			if allowed := status != http.StatusMethodNotAllowed; allowed != wantAllowed {
				t.Errorf("%s by GET: got status %d, want that it is allowed: %v", procedure, status, wantAllowed)
			}
		}
	}
}

func TestProtocols(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	http1 := w.http
	for name, c := range map[string]struct {
		http    *http.Client
		options []connect.ClientOption
	}{
		"connect":                   {http1, nil},
		"connect with JSON":         {http1, []connect.ClientOption{connect.WithProtoJSON()}},
		"connect over HTTP/2":       {&http.Client{Transport: h2}, nil},
		"connect, gzipped requests": {http1, []connect.ClientOption{connect.WithSendGzip()}},
		"gRPC":                      {&http.Client{Transport: h2}, []connect.ClientOption{connect.WithGRPC()}},
		"gRPC-Web":                  {http1, []connect.ClientOption{connect.WithGRPCWeb()}},
		"gRPC-Web with JSON":        {http1, []connect.ClientOption{connect.WithGRPCWeb(), connect.WithProtoJSON()}},
	} {
		t.Run(name, func(t *testing.T) {
			w.http = c.http
			w.connect(c.options...)
			page, err := w.followers("bob", anyKind)(1, "", at)
			if err != nil || len(page.entries) != 1 {
				t.Errorf("ListFollowers: got %v and error %v, want one follower", page, err)
			}
			if followers, _ := w.scan(scanUser("bob", "", at), nil); len(followers) != 1 {
				t.Errorf("ScanFollowers: got %v, want one follower", followers)
			}
			_, err = w.followers("", anyKind)(-1, "", at)
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "user_id")
			if fields := detailsOf(t, err).fields; len(fields) != 2 {
				t.Errorf("ListFollowers with two invalid fields: got the violations %v, want two", fields)
			}
		})
	}
	w.http = http1 // the world closes the connections of its client at the end
}

// TestErrorsSayWhatIsInvalid checks that each malformed request gets an error that says what is
// wrong with it, and that the service answers afterwards.
func TestErrorsSayWhatIsInvalid(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	const publish = connectv1.EventServicePublishProcedure
	const check = connectv1.GraphServiceCheckFollowsProcedure
	const list = connectv1.GraphServiceListFollowersProcedure
	longID := strings.Repeat("x", 129)
	repeat1001 := func(item string) string {
		return strings.TrimSuffix(strings.Repeat(item+",", 1001), ",")
	}
	for name, c := range map[string]struct {
		procedure, body, reason, text string
	}{
		"self-follow": {
			publish, `{"events":[{"userFollowed":{"userId":"a","targetUserId":"a"}}]}`,
			"SELF_RELATION", "events[0].user_followed.target_user_id must not be the acting user",
		},
		"over-long id": {
			publish, `{"events":[{"userFollowed":{"userId":"` + longID + `","targetUserId":"a"}}]}`,
			"INVALID_FIELD", "129 bytes",
		},
		"empty id": {
			publish, `{"events":[{"userFollowed":{"userId":"","targetUserId":"a"}}]}`,
			"INVALID_FIELD", "events[0].user_followed.user_id must be 1 to 128 bytes",
		},
		"1001 events": {
			publish, `{"events":[` + repeat1001(`{"userFollowed":{"userId":"a","targetUserId":"b"}}`) + `]}`,
			"TOO_LARGE", "more than 1000 events: at most 1000",
		},
		"1001 pairs": {
			check, `{"pairs":[` + repeat1001(`{"userId":"a","targetUserId":"b"}`) + `]}`,
			"INVALID_FIELD", "pairs has more than 1000 items: must have at most 1000",
		},
		"no pairs":       {check, `{}`, "INVALID_FIELD", "pairs has 0 items"},
		"pair of nobody": {check, `{"pairs":[{"userId":"a"}]}`, "INVALID_FIELD", "pairs[0].target must be given"},
		"id with a space": {
			check, `{"pairs":[{"userId":"a","targetUserId":"b c"}]}`,
			"INVALID_FIELD", "pairs[0].target_user_id must be UTF-8 without white space",
		},
		"id of a NUL": {
			check, `{"pairs":[{"userId":"a","board":{"ownerId":"b","boardId":"\u0000"}}]}`,
			"INVALID_FIELD", "pairs[0].board.board_id",
		},
		"foreign token": {list, `{"userId":"bob","pageToken":"AQNsb2c"}`, "INVALID_PAGE_TOKEN", "page_token"},
		"future": {
			check, `{"pairs":[{"userId":"a","targetUserId":"b"}],"atLeast":"` + w.log.Position(99).String() + `"}`,
			"INVALID_POSITION", "at_least is beyond the end of the log",
		},
		"unknown kind": {list, `{"userId":"bob","kind":"FOLLOW_KIND_BOARD"}`, "INVALID_FIELD", "kind"},
		"unknown enum": {
			list, `{"userId":"bob","kind":"SIDEWAYS"}`,
			"INVALID_FIELD", "kind must be FOLLOW_KIND_EXPLICIT or",
		},
		"unknown field":   {list, `{"userId":"bob","atLeest":"x"}`, "INVALID_FIELD", "atLeest"},
		"number for text": {list, `{"userId":7}`, "INVALID_FIELD", "user_id must be a JSON string"},
		"a cut body":      {list, `{"userId":"b`, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest"},
		"an empty body":   {list, ``, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest: an empty body"},
		"a list":          {list, `[]`, "INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest"},
		"deep nesting": {
			list, strings.Repeat(`{"x":`, 100_000),
			"INVALID_FIELD", "the body is no skein.v1.ListFollowersRequest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, body := w.post(c.procedure, "application/json", strings.NewReader(c.body))
			e := parseError(t, body)
			if status != http.StatusBadRequest || e.Code != "invalid_argument" || e.reason() != c.reason || !strings.Contains(e.Message, c.text) {
				t.Errorf("got status %d and %.300s, want 400, invalid_argument, %s and the text %q", status, body, c.reason, c.text)
			}
		})
	}

	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Errorf("ListFollowers afterwards: got error %v, want none", err)
	}
}

// TestCallOfAMegabyteIsAccepted checks that the limit on the size of a call is that of the log. A
// thousand events with the longest ids are about 1 MB of JSON, but only 380 KiB in binary.
func TestCallOfAMegabyteIsAccepted(t *testing.T) {
	w := newWorld(t)
	backfills := make([]string, 1000)
	for i := range backfills {
		backfills[i] = fmt.Sprintf(`{"userFollowed":{"userId":%q,"targetUserId":%q},"source":%q,"offset":%d,"occurredAt":"2001-01-01T00:00:00Z"}`,
			strings.Repeat("x", 128), strings.Repeat("y", 128), strings.Repeat("x", 64), i+1)
	}
	call := `{"events":[` + strings.Join(backfills, ",") + `]}`
	status, _, body := w.post(connectv1.EventServicePublishProcedure, "application/json", strings.NewReader(call))
	if status != http.StatusOK {
		t.Errorf("Publish of %d bytes: got status %d and %.300s, want 200", len(call), status, body)
	}
}

// endlessBody is a body of spaces that counts how many bytes of it were read.
type endlessBody struct{ bytesRead atomic.Int64 }

func (e *endlessBody) Read(p []byte) (int, error) {
	e.bytesRead.Add(int64(len(p)))
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestBodiesThatAreTooLarge checks that a body of 100 MB is refused without being read: at once
// if its length is known, and otherwise at the limit. A gzipped body is refused if it is too
// large when unpacked.
func TestBodiesThatAreTooLarge(t *testing.T) {
	w := newWorld(t)
	const size = 100 << 20
	for name, contentLength := range map[string]int64{"of known length": size, "of unknown length": -1} {
		for _, contentType := range []string{"application/json", "application/proto"} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				body := &endlessBody{}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.EventServicePublishProcedure, io.LimitReader(body, size))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = contentLength
				req.Header.Set("Content-Type", contentType)

				res, err := w.http.Do(req)
				if err != nil {
					// The server may close the connection while the client is still sending, before
					// the client has read the answer.
					t.Log(err)
				} else {
					answer, _ := io.ReadAll(res.Body)
					if e := parseError(t, answer); e.reason() != "TOO_LARGE" || e.Code != "invalid_argument" || !strings.Contains(e.Message, "4 MiB") {
						t.Errorf("got the answer %s, want invalid_argument, TOO_LARGE and the limit of 4 MiB", answer)
					}
					res.Body.Close()
				}

				// The client also sends what the buffers of the connection take: 4 MiB of the
				// sender and 32 MiB of the receiver with the default settings of Linux.
				if n := body.bytesRead.Load(); n > size/2 {
					t.Errorf("%d bytes of the body were read, want at most half of its %d", n, size)
				}
			})
		}
	}

	// This body is small as it is sent, and six times the limit when it is unpacked.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := io.CopyN(z, &endlessBody{}, 24<<20); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	status, _, answer := w.post(connectv1.EventServicePublishProcedure, "application/json", &bomb, "Content-Encoding", "gzip")
	if e := parseError(t, answer); status != http.StatusBadRequest || e.reason() != "TOO_LARGE" {
		t.Errorf("gzipped body: got status %d and %s, want 400 and TOO_LARGE", status, answer)
	}

	w.publish(follow("ann", "bob"))
}

// TestRandomBytesCauseNoInternalError checks that random bytes, sent to every method in every
// encoding, get an answer and never cause a panic.
func TestRandomBytesCauseNoInternalError(t *testing.T) {
	w := newWorld(t, withFeeds)
	random := rand.New(rand.NewPCG(1, 2))
	good := marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}})
	for procedure := range w.server.methods {
		if procedure == healthv1connect.HealthWatchProcedure {
			continue // its answer has no end
		}
		for range 30 {
			// Send random bytes, or a good request with a flipped bit.
			body := make([]byte, random.IntN(200))
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				body = slices.Clone(good)
				body[random.IntN(len(body))] ^= 1 << random.IntN(8)
			}
			for _, contentType := range []string{
				"application/proto", "application/json", "application/grpc-web+proto", "application/connect+proto", "text/plain",
			} {
				status, _, answer := w.post(procedure, contentType, bytes.NewReader(body))
				if status == http.StatusInternalServerError {
					t.Fatalf("%s %s %x: got status 500 and %s, want another status", procedure, contentType, body, answer)
				}
			}
		}
	}
	w.publish(follow("ann", "bob"))
}

func TestTooManyCallsAtOnceAreRefused(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) {
		o.Limits.InFlight = 1
		o.Limits.AtLeastWait = time.Hour
	})
	at := w.publish(follow("ann", "bob"))

	// The first call waits for the graph, so the second one is too many.
	firstCall := make(chan error)
	go func() {
		_, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		firstCall <- err
	}()
	w.awaitInFlight(1)
	_, err := w.followers("bob", anyKind)(1, "", "")
	wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
	if !detailsOf(t, err).retry {
		t.Error("second call: got an error without RetryInfo, want one")
	}

	// Once the first call has been answered, there is a place again.
	w.fold()
	if err := <-firstCall; err != nil {
		t.Errorf("first call: got error %v, want none", err)
	}
	for w.server.budgets.InFlight() > 0 {
		runtime.Gosched()
	}
	if _, err = w.followers("bob", anyKind)(1, "", ""); err != nil {
		t.Errorf("call afterwards: got error %v, want none", err)
	}
}

// TestErrorsInGRPCHaveReasons checks that errors have the same codes, reasons and fields in gRPC.
func TestErrorsInGRPCHaveReasons(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.BodyBytes = 1000 })
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	w.http = &http.Client{Transport: h2}
	w.connect(connect.WithGRPC())

	// The library that reads messages of gRPC refuses a message that is too large by itself, with a
	// code of its own.
	var follows []*skeinv1.Event
	for range 100 {
		follows = append(follows, follow("ann", "bob"))
	}
	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: follows}))
	if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted {
		t.Errorf("call that is too large: got error %v, want invalid_argument or resource_exhausted", err)
	}

	_, err = w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "a")}}))
	wantError(t, err, connect.CodeInvalidArgument, "SELF_RELATION", "events[0].user_followed.target_user_id")
}

// TestCallToUncleanPathGetsAnError checks that a path with two slashes gets an error instead of a
// redirect. Clients whose base URL ends with a slash send such paths, and do not follow redirects.
func TestCallToUncleanPathGetsAnError(t *testing.T) {
	w := newWorld(t)
	status, header, body := w.post("/"+connectv1.GraphServiceCheckFollowsProcedure, "application/json", strings.NewReader("{}"))
	if e := parseError(t, body); status != http.StatusNotFound || !strings.Contains(e.Message, `it is "//skein.v1.GraphService/CheckFollows"`) {
		t.Errorf("got %d %v %s, want 404 and the path in the message", status, header, body)
	}
}

// TestMalformedProtocolHeadersAreNamed checks that an error that occurs before a method runs has a
// reason and names the header, as errors of methods name a field.
func TestMalformedProtocolHeadersAreNamed(t *testing.T) {
	const (
		jsonType  = "application/json"
		protoType = "application/proto"
		list      = connectv1.GraphServiceListFollowersProcedure
		watch     = connectv1.EventServiceWatchProcedure
	)
	w := newWorld(t)
	for _, c := range []struct {
		name, procedure, contentType string
		headers                      []string
		code, message                string
	}{
		{
			"a timeout that is no number", list, jsonType,
			[]string{"Connect-Timeout-Ms", "soon"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "soon"`,
		},
		{
			"a negative timeout", list, protoType,
			[]string{"Connect-Timeout-Ms", "-1"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "-1"`,
		},
		{
			"a timeout of 11 digits", list, protoType,
			[]string{"Connect-Timeout-Ms", "12345678901"},
			"invalid_argument",
			`Connect-Timeout-Ms must be a number of milliseconds of 1 to 10 digits, as in 500; it is "12345678901"`,
		},
		{
			"an unknown compression", list, jsonType,
			[]string{"Content-Encoding", "br"},
			"unimplemented",
			`Content-Encoding must be gzip or identity; it is "br"`,
		},
		{
			"an unknown version", list, protoType,
			[]string{"Connect-Protocol-Version", "2"},
			"invalid_argument",
			`Connect-Protocol-Version must be 1; it is "2"`,
		},
		{
			"an unknown version of a stream", watch, "application/connect+json",
			[]string{"Connect-Protocol-Version", "2"},
			"invalid_argument",
			`Connect-Protocol-Version must be 1; it is "2"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, body := w.post(c.procedure, c.contentType, strings.NewReader("{}"), c.headers...)
			e := parseError(t, body)
			if diff := cmp.Diff([]string{c.code, "INVALID_FIELD", c.message}, []string{e.Code, e.reason(), e.Message}); diff != "" {
				t.Errorf("code, reason and message (-want +got):\n%s", diff)
			}
		})
	}
	for _, c := range []struct{ name, query, code, message string }{
		{"a GET of an unknown version", "connect=v2&encoding=json&message=%7B%7D", "invalid_argument", `connect must be v1 in the query of a GET; it is "v2"`},
		{
			"a GET of an unknown compression", "connect=v1&encoding=json&compression=br&message=%7B%7D", "unimplemented",
			`compression must be gzip or identity; it is "br"`,
		},
		{
			"a GET without a message", "connect=v1&encoding=json", "invalid_argument",
			"message must be given in the query of a GET, as in encoding=json&message=%7B%22userId%22%3A%22ann%22%7D",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, body := w.get(list + "?" + c.query)
			e := parseError(t, body)
			if diff := cmp.Diff([]string{c.code, "INVALID_FIELD", c.message}, []string{e.Code, e.reason(), e.Message}); diff != "" {
				t.Errorf("code, reason and message (-want +got):\n%s", diff)
			}
		})
	}

	// The errors of a stream are in its last frame, and those of gRPC are in headers.
	for _, c := range []struct{ name, contentType, header, value, message string }{
		{"a timeout of a stream", "application/connect+json", "Connect-Timeout-Ms", "soon", "Connect-Timeout-Ms must be a number"},
		{"a compression of a stream", "application/connect+json", "Connect-Content-Encoding", "br", "Connect-Content-Encoding must be gzip or identity"},
		{"a timeout of gRPC", "application/grpc-web+proto", "Grpc-Timeout", "500", "Grpc-Timeout must be 1 to 8 digits and a unit"},
		{"a compression of gRPC", "application/grpc-web+proto", "Grpc-Encoding", "br", "Grpc-Encoding must be gzip or identity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, header, body := w.post(watch, c.contentType, strings.NewReader("\x00\x00\x00\x00\x02{}"), c.header, c.value)
			if text := fmt.Sprint(header) + string(body); !strings.Contains(text, c.message) {
				t.Errorf("got %q, want %q in it", text, c.message)
			}
		})
	}
}

// TestGRPCWebTextIsRefused checks that the base64 form of gRPC-Web, which is not supported, gets an
// error that names the supported forms.
func TestGRPCWebTextIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, contentType := range []string{"application/grpc-web-text", "application/grpc-web-text+proto"} {
		status, _, body := w.post(connectv1.GraphServiceListFollowersProcedure, contentType, strings.NewReader("AAAAAAA="))
		e := parseError(t, body)
		if status != http.StatusUnsupportedMediaType || !strings.Contains(e.Message, "application/grpc-web; it is") {
			t.Errorf("%s: got %d %s, want 415 and the supported types", contentType, status, body)
		}
	}
}

// TestEveryAnswerForbidsSniffing checks that browsers must not guess the content type of any
// answer, including those of the HTTP loop, errors, and pages that do not exist.
func TestEveryAnswerForbidsSniffing(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Console = true })
	w.publish(follow("ann", "bob"))
	wantNoSniff := func(name string, header http.Header) {
		t.Helper()
		if got := header.Values("X-Content-Type-Options"); !slices.Equal(got, []string{"nosniff"}) {
			t.Errorf("%s: X-Content-Type-Options: got %q, want nosniff once", name, got)
		}
	}
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/console/", "/nothing", "//healthz"} {
		_, header, _ := w.get(path)
		wantNoSniff(path, header)
	}
	const list = connectv1.GraphServiceListFollowersProcedure
	for contentType, body := range map[string][]byte{
		"application/json": []byte(`{"userId":"bob"}`), "application/proto": marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob"}), "text/plain": nil,
	} {
		_, header, _ := w.post(list, contentType, bytes.NewReader(body))
		wantNoSniff(contentType, header)
	}
	_, header, _ := w.post(list, "application/proto", bytes.NewReader(marshal(t, &skeinv1.ListFollowersRequest{})))
	wantNoSniff("an error from the loop", header)
}

// TestFrontPageLeadsToConsole checks that a person who opens the address of the service is sent to
// the console, or reads which pages there are instead.
func TestFrontPageLeadsToConsole(t *testing.T) {
	for name, withConsole := range map[string]bool{"with a console": true, "without a console": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *worldOptions) { o.Console = withConsole })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := w.http.Transport.RoundTrip(req) // a client would follow the redirect
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}

			wantStatus, wantLocation, wantText := http.StatusOK, "", "not served here"
			if withConsole {
				wantStatus, wantLocation, wantText = http.StatusFound, "console/", "/console/"
			}
			location := res.Header.Get("Location")
			if res.StatusCode != wantStatus || location != wantLocation {
				t.Errorf("got status %d and location %q, want status %d and location %q", res.StatusCode, location, wantStatus, wantLocation)
			}
			for _, want := range []string{wantText, "/readyz"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("got the page %s, want %q in it", text, want)
				}
			}
		})
	}
}

// TestUnknownPathsAndMethodsGetErrors checks that an unknown path, or a path with another method of
// HTTP, gets an error in JSON that says what is there.
func TestUnknownPathsAndMethodsGetErrors(t *testing.T) {
	w := newWorld(t)
	const pathError = "path must be that of a method, as /skein.v1.GraphService/CheckFollows, or of a page: /healthz, /readyz, /metrics; it is %q"
	for _, path := range []string{
		"/nothing", "/skein.v1.GraphService/Nothing", "/metrics/x", "/skein.v1.GraphService", "/skein.v1.GraphService/Check%46ollows",
		"//", "//skein.v1.GraphService/CheckFollows", "/skein.v1.GraphService//CheckFollows", "/./healthz", "/console/../healthz", "/healthz//",
	} {
		status, header, body := w.get(path)
		want := fmt.Sprintf(pathError, path)
		if e := parseError(t, body); status != http.StatusNotFound || e.Message != want || e.Code != "unimplemented" ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %v %s, want 404, unimplemented and the message %q", path, status, header, body, want)
		}
	}

	status, header, body := w.post("/healthz", "application/json", strings.NewReader("{}"))
	if e := parseError(t, body); status != http.StatusMethodNotAllowed || e.Message != `method must be GET, HEAD; it is "POST"` ||
		header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST of /healthz: got %d %v %s, want 405 and GET, HEAD", status, header, body)
	}
	status, header, body = w.get(connectv1.EventServicePublishProcedure)
	if e := parseError(t, body); status != http.StatusMethodNotAllowed || e.Message != `method must be POST; it is "GET"` ||
		header.Get("Allow") != "POST" {
		t.Errorf("GET of Publish: got %d %v %s, want 405 and POST", status, header, body)
	}
}

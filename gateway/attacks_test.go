package gateway

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/access/accesstest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// attacker attacks a server that is protected by TLS and tokens. docs/attacks.md lists the attacks.
type attacker struct {
	*guarded
	t *testing.T
	// impatientURL is the URL of a second server, which waits for its clients only for a second.
	impatientURL string
	// pageTokenOfBob is a page token of bob's feed.
	pageTokenOfBob string
}

// admitted is the result of an attack that the server answers as any good call.
const admitted = "let pass"

// resultOf returns the result of an attack that ends with the error: its code and reason, or
// admitted for nil.
func resultOf(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return admitted
	}
	d := detailsOf(t, err)
	return d.code.String() + " " + d.reason
}

// call makes a call with a token in both call formats, and checks that both have the same result.
func (a *attacker) call(token, procedure string, req proto.Message) string {
	a.t.Helper()
	var results []string
	for _, format := range callFormats {
		body, err := format.marshal(req)
		if err != nil {
			a.t.Fatal(err)
		}
		code, reason := a.callForError(a.t, procedure, format.contentType, body, token)
		results = append(results, strings.TrimSpace(code+" "+reason))
	}
	if results[0] != results[1] {
		a.t.Errorf("%s: got the results %q, want the same in both formats", procedure, results)
	}
	if results[0] == "" {
		return admitted
	}
	return results[0]
}

// listBlocked asks for a list that only its user may see.
func (a *attacker) listBlocked(token, user string) string {
	a.t.Helper()
	return a.call(token, connectv1.GraphServiceListBlockedProcedure, &skeinv1.ListBlockedRequest{UserId: user})
}

func (a *attacker) publishAs(token string, allowPartial bool, evs ...*skeinv1.Event) string {
	a.t.Helper()
	return a.call(token, connectv1.EventServicePublishProcedure, &skeinv1.PublishRequest{Events: evs, AllowPartial: allowPartial})
}

func (a *attacker) readFeedPage(token, reader, pageToken string) string {
	a.t.Helper()
	return a.call(token, connectv1.FeedServiceReadFeedProcedure, &skeinv1.ReadFeedRequest{
		ReaderId: reader, PageSize: 1, Start: &skeinv1.ReadFeedRequest_PageToken{PageToken: pageToken},
	})
}

// forgeJWT returns a JWT with the claims of a good one, another header, and the signature that sign
// makes.
func (a *attacker) forgeJWT(header string, sign func(signed string) []byte) string {
	claims := strings.Split(a.jwts.Token(nil), ".")[1]
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + claims
	return signed + "." + base64.RawURLEncoding.EncodeToString(sign(signed))
}

// postJSON posts JSON with some headers, and returns the code and reason of the error, or the
// status if the answer has none.
func (a *attacker) postJSON(procedure string, body io.Reader, headers ...string) string {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+procedure, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		// Add, because one attack has two headers of the same name.
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := a.http.Do(req)
	if err != nil {
		return "cut off"
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatal(err)
	}

	if res.StatusCode == http.StatusOK {
		return admitted
	}
	var e jsonError
	if json.Unmarshal(text, &e) != nil {
		return fmt.Sprint("status ", res.StatusCode)
	}
	return strings.TrimSpace(e.Code + " " + e.reason())
}

// sendBytes sends text on a new connection, over TLS if config is not nil, and reads until the
// server closes the connection. It returns the status of the answer, or "cut off" if there is none.
func (a *attacker) sendBytes(config *tls.Config, text string) string {
	a.t.Helper()
	addr := strings.TrimPrefix(a.url, "https://")
	conn, err := (&net.Dialer{}).DialContext(a.t.Context(), "tcp", addr)
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(a.t.Context()); err != nil {
			return "no handshake"
		}
		conn = secure
	}

	// Both may fail because the server has closed the connection, which is a result.
	_, _ = io.WriteString(conn, text)
	answer, _ := io.ReadAll(conn)
	if afterVersion, ok := bytes.CutPrefix(answer, []byte("HTTP/1.")); ok {
		return "status " + string(afterVersion[2:5])
	}
	return "cut off"
}

// sendBytesThenNothing sends text to the impatient server, and nothing after it. On a slow machine,
// the second may be over before the server has read the text, which gives another result. Therefore
// it tries again until the result is the wanted one, or the test has no patience any more.
func (a *attacker) sendBytesThenNothing(config *tls.Config, text, want string) (got string) {
	a.t.Helper()
	impatient := *a.world
	impatient.url = a.impatientURL
	client := &attacker{guarded: &guarded{world: &impatient}, t: a.t}
	for deadline := time.Now().Add(patienceOfTests); time.Now().Before(deadline); {
		got = client.sendBytes(config, text)
		if got == "status 504" {
			got = "cut off" // the server may send this status before it closes the connection
		}
		if got == want {
			break
		}
		a.t.Logf("%q, and then nothing: got %s, want %s", text, got, want)
	}
	return got
}

// configForHTTP1 returns a configuration of TLS with which the client does not ask for HTTP/2.
func (a *attacker) configForHTTP1() *tls.Config {
	return &tls.Config{RootCAs: a.ca.Pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// scanFollowers streams the followers of bob.
func (a *attacker) scanFollowers(token string) string {
	a.t.Helper()
	scan, err := a.as(token).graph.ScanFollowers(a.t.Context(), connect.NewRequest(&skeinv1.ScanFollowersRequest{
		Target: &skeinv1.ScanFollowersRequest_UserId{UserId: "bob"},
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	defer scan.Close()
	for scan.Receive() {
	}
	return resultOf(a.t, scan.Err())
}

// attack is an attack as docs/attacks.md lists it. Its function makes the attack and returns the
// result.
type attack struct {
	name string
	make func() string
	want string
}

// Results of attacks.
const (
	tokenMissing     = "unauthenticated TOKEN_MISSING"
	tokenInvalid     = "unauthenticated TOKEN_INVALID"
	tokenExpired     = "unauthenticated TOKEN_EXPIRED"
	roleMissing      = "permission_denied ROLE_MISSING"
	otherUser        = "permission_denied OTHER_USER"
	invalidPageToken = "invalid_argument INVALID_PAGE_TOKEN"
)

// attacksWithTokens are attacks with tokens that are not what they should be.
func (a *attacker) attacksWithTokens() []attack {
	withToken := func(token string) func() string {
		return func() string { return a.listBlocked(token, "ann") }
	}
	withJWT := func(claims map[string]any) func() string { return withToken(a.jwts.Token(claims)) }
	hashInTokenFile := strings.TrimPrefix(strings.Fields(a.lines["all"])[2], "sha256:")
	signWithNothing := func(string) []byte { return nil }
	// The server knows the public key, so it must not take it for a secret that both sides share.
	signWithPublicKey := func(signed string) []byte {
		public, err := a.jwts.Public().MarshalJSON()
		if err != nil {
			a.t.Fatal(err)
		}
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(signed))
		return mac.Sum(nil)
	}
	return []attack{
		{"no token", withToken(""), tokenMissing},
		{"a guessed token", withToken(otherEnd(a.tokens["all"])), tokenInvalid},
		{"the hash of a token, from the token file", withToken(hashInTokenFile), tokenInvalid},
		{"a token in the URL", func() string {
			return a.postJSON(connectv1.GraphServiceListBlockedProcedure+"?access_token="+a.tokens["all"], strings.NewReader("{}"))
		}, tokenMissing},
		{"a token as password", func() string {
			return a.postJSON(connectv1.GraphServiceListBlockedProcedure, strings.NewReader("{}"), "Authorization",
				"Basic "+base64.StdEncoding.EncodeToString([]byte("x:"+a.tokens["all"])))
		}, tokenInvalid},
		{"two tokens, one of them good", func() string {
			return a.postJSON(connectv1.GraphServiceListBlockedProcedure, strings.NewReader("{}"),
				"Authorization", "Bearer x", "Authorization", "Bearer "+a.tokens["all"])
		}, tokenInvalid},
		{"an expired token", withToken(a.tokens["old"]), tokenExpired},
		{"an expired JWT", withJWT(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), tokenExpired},
		{"a JWT that never expires", withJWT(map[string]any{"exp": nil}), tokenInvalid},
		{"a JWT that is not valid yet", withJWT(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), tokenInvalid},
		{"a JWT for another service", withJWT(map[string]any{"aud": "other"}), tokenInvalid},
		{"a JWT of another issuer", withJWT(map[string]any{"iss": "https://evil.example"}), tokenInvalid},
		{"a JWT with an empty user", withJWT(map[string]any{"skein_user": ""}), tokenInvalid},
		{"a JWT without roles", withJWT(map[string]any{"skein_roles": nil}), roleMissing},
		{"a JWT signed by another key of the same id", withToken(accesstest.NewJWTs(a.t, "one").Token(nil)), tokenInvalid},
		{"a JWT with `alg: none`", withToken(a.forgeJWT(`{"alg":"none","kid":"one"}`, signWithNothing)), tokenInvalid},
		{
			"a JWT with `alg: HS256`, signed with the public key",
			withToken(a.forgeJWT(`{"alg":"HS256","kid":"one"}`, signWithPublicKey)), tokenInvalid,
		},
		{"a JWT with other claims than were signed", func() string {
			good := strings.Split(a.jwts.Token(nil), ".")
			claimsOfBob := strings.Split(a.jwts.Token(map[string]any{"skein_user": "bob"}), ".")[1]
			return a.listBlocked(good[0]+"."+claimsOfBob+"."+good[2], "bob")
		}, tokenInvalid},
		{"metrics without a token", func() string {
			status, _, _ := a.get("/metrics")
			return fmt.Sprint("status ", status)
		}, "status 401"},
	}
}

// attacksOfCallers are attacks of callers with a valid token who ask for more than they may have.
func (a *attacker) attacksOfCallers() []attack {
	ann := a.tokens["ann"]
	followByBob := follow("bob", "eve")
	backfill := follow("ann", "eve")
	backfill.Source = "import"
	backfill.Offset = 1 << 63
	backfill.OccurredAt = timestamppb.New(time.Unix(1e9, 0))
	replayed := follow("ann", "dan")
	replayed.EventId = "one"
	return []attack{
		{"to publish with the role `read`", func() string { return a.publishAs(a.tokens["reader"], false, followByBob) }, roleMissing},
		{"to read with the role `publish`", func() string { return a.listBlocked(a.tokens["publisher"], "ann") }, roleMissing},
		{"to stream all followers with the role `read`", func() string { return a.scanFollowers(a.tokens["reader"]) }, roleMissing},
		{"to erase a user with the roles of everybody but `admin`", func() string {
			token := a.jwts.Token(map[string]any{"skein_roles": "publish read offline"})
			return a.call(token, connectv1.AdminServiceEraseUserProcedure, &skeinv1.EraseUserRequest{UserId: "bob"})
		}, roleMissing},
		{"to follow in the name of another user", func() string { return a.publishAs(ann, false, followByBob) }, otherUser},
		{"to follow in the name of another user among good events, with `allow_partial`", func() string {
			return a.publishAs(ann, true, follow("ann", "eve"), followByBob)
		}, otherUser},
		{"a backfill of an enormous offset, to keep an import out", func() string { return a.publishAs(ann, false, backfill) }, otherUser},
		{"to end all imports forever", func() string {
			return a.publishAs(ann, false, &skeinv1.Event{Kind: &skeinv1.Event_BackfillClosed{BackfillClosed: &skeinv1.BackfillClosed{}}})
		}, otherUser},
		{"to read the feed of another user", func() string { return a.readFeedPage(ann, "bob", "") }, otherUser},
		{"to read whom another user blocks", func() string { return a.listBlocked(ann, "bob") }, otherUser},
		{"to count whom another user blocks", func() string {
			countBlocked := func(token string) uint32 {
				w := a.as(token)
				counts := ask(w, w.graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"bob"}})
				return counts.GetUsers()[0].GetBlockedCount()
			}
			return fmt.Sprintf("%d of %d", countBlocked(ann), countBlocked(a.tokens["all"]))
		}, "0 of 1"},
		{"to ask what another user has played", func() string {
			return a.call(ann, connectv1.SeenServiceFilterSeenProcedure, &skeinv1.FilterSeenRequest{UserId: "bob", ItemIds: []string{"i"}})
		}, otherUser},
		{"another user's page token, for the own feed", func() string { return a.readFeedPage(ann, "ann", a.pageTokenOfBob) }, invalidPageToken},
		{"another user's page token, for that user's feed", func() string { return a.readFeedPage(ann, "bob", a.pageTokenOfBob) }, otherUser},
		{"a page token with one bit changed", func() string {
			damaged := []byte(a.pageTokenOfBob)
			damaged[len(damaged)/2] ^= 1
			return a.readFeedPage(a.tokens["reader"], "bob", string(damaged))
		}, invalidPageToken},
		{"the same event id again", func() string {
			before := a.countFollowers("dan")
			for range 2 {
				if got := a.publishAs(ann, false, replayed); got != admitted {
					return got
				}
			}
			return fmt.Sprint(admitted, ", ", a.countFollowers("dan")-before, " fact")
		}, "let pass, 1 fact"},
		{"an event id that another user will use, to have that event dropped", func() string {
			byAnn := follow("ann", "fay")
			byAnn.EventId = "stolen"
			byGil := follow("gil", "fay")
			byGil.EventId = "stolen"
			before := a.countFollowers("fay")
			if got := a.publishAs(ann, false, byAnn); got != admitted {
				return got
			}
			if got := a.publishAs(a.tokens["all"], false, byGil); got != admitted {
				return got
			}
			return fmt.Sprint(admitted, ", ", a.countFollowers("fay")-before, " facts")
		}, "let pass, 2 facts"},
		{"to continue watching after the token was taken back", func() string {
			watch, err := a.as(a.tokens["offline"]).events.Watch(a.t.Context(), connect.NewRequest(&skeinv1.WatchRequest{}))
			if err != nil {
				a.t.Fatal(err)
			}
			defer watch.Close()
			a.writeTokens(a.t, "offline")
			for watch.Receive() {
			}
			return resultOf(a.t, watch.Err())
		}, tokenInvalid},
		{"a token that was taken back", func() string { return a.scanFollowers(a.tokens["offline"]) }, tokenInvalid},
	}
}

// countFollowers returns how many followers a user has, after everything that was published before
// the call. It publishes another event to learn the position.
func (a *attacker) countFollowers(user string) uint32 {
	a.t.Helper()
	w := a.as(a.tokens["all"])
	published, err := w.events.Publish(a.t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{played("nobody", "i")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	followers := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: user, AtLeast: published.Msg.GetPosition()})
	return followers.GetTotalSize()
}

// attacksWithBytes are attacks that do not need a user: bytes that are no good HTTP, no good TLS,
// or too many.
func (a *attacker) attacksWithBytes() []attack {
	listBlocked := connectv1.GraphServiceListBlockedProcedure
	authorization := "Bearer " + a.tokens["all"]
	oldTLS := a.configForHTTP1()
	oldTLS.MinVersion = tls.VersionTLS10
	oldTLS.MaxVersion = tls.VersionTLS11
	beginOfHead := "POST " + listBlocked + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	return []attack{
		{"plain HTTP on the port of TLS", func() string { return a.sendBytes(nil, beginOfHead+"Content-Length: 2\r\n\r\n{}") }, "status 400"},
		{"TLS 1.1", func() string { return a.sendBytes(oldTLS, "") }, "no handshake"},
		{"garbage in place of a handshake", func() string { return a.sendBytes(nil, strings.Repeat("\xff\x00", 1000)) }, "cut off"},
		{"a handshake that does not continue", func() string { return a.sendBytesThenNothing(nil, "\x16\x03\x01", "cut off") }, "cut off"},
		{"garbage over TLS", func() string { return a.sendBytes(a.configForHTTP1(), strings.Repeat("\xff\x00", 1000)+"\r\n\r\n") }, "status 400"},
		{"half a header, and then nothing", func() string { return a.sendBytesThenNothing(a.configForHTTP1(), beginOfHead, "cut off") }, "cut off"},
		{"half a body, and then nothing, without a token", func() string {
			return a.sendBytesThenNothing(a.configForHTTP1(), beginOfHead+"Content-Length: 100\r\n\r\n{", "status 401")
		}, "status 401"},
		{"half a body, and then nothing, with a token", func() string {
			return a.sendBytesThenNothing(a.configForHTTP1(), beginOfHead+"Authorization: "+authorization+"\r\nContent-Length: 100\r\n\r\n{", "cut off")
		}, "cut off"},
		{"a header of 80 KiB", func() string {
			return a.sendBytes(a.configForHTTP1(), beginOfHead+"X-Long: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
		}, "status 431"},
		{"a token of 20 KiB", func() string {
			return a.postJSON(listBlocked, strings.NewReader("{}"), "Authorization", "Bearer "+strings.Repeat("x", 20<<10))
		}, tokenInvalid},
		{"a body of 5 MiB, without a token", func() string {
			return a.postJSON(listBlocked, io.LimitReader(blanks{}, 5<<20))
		}, tokenMissing},
		{"a body of 5 MiB, with a token", func() string {
			return a.postJSON(listBlocked, bytes.NewReader(make([]byte, 5<<20)), "Authorization", authorization)
		}, "invalid_argument TOO_LARGE"},
		{"64 MiB packed to 64 KiB, with a token", func() string {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(make([]byte, 64<<20))
			_ = z.Close()
			return a.postJSON(listBlocked, &packed, "Authorization", authorization, "Content-Encoding", "gzip")
		}, "invalid_argument TOO_LARGE"},
		{"garbage for a request, with a token", func() string {
			return a.postJSON(listBlocked, strings.NewReader("\x00{{{"), "Authorization", authorization)
		}, "invalid_argument INVALID_FIELD"},
		{"a message over TLS with two framings, and an event behind it", func() string {
			first := beginOfHead + "Authorization: " + authorization + "\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" +
				chunks(`{"userId":"bob"}`)
			const event = `{"events":[{"userFollowed":{"userId":"ann","targetUserId":"eve"}}]}`
			second := strings.Replace(beginOfHead, listBlocked, connectv1.EventServicePublishProcedure, 1) +
				"Authorization: " + authorization + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(event), event)
			return a.sendBytes(a.configForHTTP1(), first+second)
		}, "status 200"},
		{"the path of a method with a percent-encoded letter, over HTTP/2", func() string {
			path := strings.Replace(listBlocked, "List", "L%69st", 1)
			req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+path, strings.NewReader(`{"userId":"bob"}`))
			if err != nil {
				a.t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", authorization)
			res, err := a.http.Do(req)
			if err != nil {
				a.t.Fatal(err)
			}
			defer res.Body.Close()
			return fmt.Sprintf("status %d over HTTP/%d", res.StatusCode, res.ProtoMajor)
		}, "status 404 over HTTP/2"},
		{"a page of another origin", func() string {
			req, err := http.NewRequestWithContext(a.t.Context(), http.MethodOptions, a.url+listBlocked, http.NoBody)
			if err != nil {
				a.t.Fatal(err)
			}
			req.Header.Set("Origin", "https://evil.example")
			req.Header.Set("Access-Control-Request-Method", "POST")
			_, header, _ := a.do(req)
			return fmt.Sprintf("allowed %q", header.Get("Access-Control-Allow-Origin"))
		}, `allowed ""`},
	}
}

// blanks is a body of blanks that never ends.
type blanks struct{}

// Read is part of io.Reader.
func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// attacksPage has a table of the attacks, between attacksTableHead and attacksTableEnd.
const (
	attacksPage      = "../docs/attacks.md"
	attacksTableHead = "| answer | attacks |\n|---|---|\n"
	attacksTableEnd  = "\n## Further attacks\n"
)

// updateAttacks makes TestAttacks write the table of docs/attacks.md.
var updateAttacks = flag.Bool("update-attacks", false, "write the table of docs/attacks.md")

// TestAttacks makes each attack, and compares the results with the table of docs/attacks.md.
func TestAttacks(t *testing.T) {
	t.Parallel()
	a := &attacker{t: t, guarded: newGuarded(t, func(o *worldOptions) {
		o.Origins = []string{"https://app.example"}
	})}
	a.impatientURL = a.replica(func(o *worldOptions) {
		a.options(t, o)
		o.Limits.IOTimeout = time.Second
	}).url
	a.server.reauthPeriod = time.Millisecond

	// Let bob block eve, and have a feed of more than one page.
	w := a.as(a.tokens["all"])
	var evs []*skeinv1.Event
	for i := range 5 {
		evs = append(evs, follow("bob", "cid"), pinned("cid", "", fmt.Sprint("p", i)))
	}
	at := w.publish(append(evs, block("bob", "eve"))...)
	a.caughtUp(at)
	page := ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "bob", PageSize: 1, AtLeast: at})
	a.pageTokenOfBob = page.GetNextPageToken()
	if a.pageTokenOfBob == "" {
		t.Fatal("the feed of bob has one page, want more")
	}
	if got := a.readFeedPage(a.tokens["reader"], "bob", a.pageTokenOfBob); got != admitted {
		t.Fatalf("second page of bob's feed: got %q, want an answer", got)
	}

	// Attacks are not subtests that can be run alone, because some change what later ones find: one
	// takes the token of "offline" away, and the next one uses that token.
	attacks := slices.Concat(a.attacksWithTokens(), a.attacksOfCallers(), a.attacksWithBytes())
	for _, attack := range attacks {
		if got := attack.make(); got != attack.want {
			t.Errorf("%s: got %q, want %q", attack.name, got, attack.want)
		}
	}
	if got := a.countFollowers("eve"); got != 0 {
		t.Errorf("eve has %d followers, want none: every follow of eve was refused", got)
	}

	checkAttacksPage(t, attacksTable(attacks))
}

// checkAttacksPage compares the table of docs/attacks.md with the rows, or writes them into it if
// the flag -update-attacks is set.
func checkAttacksPage(t *testing.T, rows string) {
	t.Helper()
	page, err := os.ReadFile(attacksPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasHead := strings.Cut(string(page), attacksTableHead)
	documented, after, hasEnd := strings.Cut(rest, attacksTableEnd)
	if !hasHead || !hasEnd {
		t.Fatalf("want %s to have the lines %q and %q", attacksPage, attacksTableHead, attacksTableEnd)
	}
	if *updateAttacks {
		documented = rows
		if err := os.WriteFile(attacksPage, []byte(before+attacksTableHead+documented+attacksTableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(rows, documented); diff != "" {
		t.Errorf("%s: go test ./gateway -run '^TestAttacks$' -update-attacks writes the table (-want +got)\n%s", attacksPage, diff)
	}
}

// followersOf returns how many followers a user has.
func (w *world) followersOf(user string) uint32 {
	w.t.Helper()
	return ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: user}).GetTotalSize()
}

// attacksTable returns the rows of the table of docs/attacks.md: one for each result, with all
// attacks that have that result.
func attacksTable(attacks []attack) string {
	var results []string
	names := map[string][]string{}
	for _, attack := range attacks {
		if names[attack.want] == nil {
			results = append(results, attack.want)
		}
		names[attack.want] = append(names[attack.want], attack.name)
	}

	var rows strings.Builder
	for _, result := range results {
		fmt.Fprintf(&rows, "| %s | %s |\n", formatResult(result), strings.Join(names[result], "<br>"))
	}
	return rows.String()
}

// formatResult returns the Markdown of a result, with codes and reasons of errors as code.
func formatResult(result string) string {
	words := strings.Fields(result)
	for i, word := range words {
		isReason := strings.ToUpper(word) == word && len(word) > 4
		if isReason || strings.Contains(word, "_") || word == "unauthenticated" {
			words[i] = "`" + word + "`"
		}
	}
	return strings.Join(words, " ")
}

// TestOnlyAllowedOriginsMayCall checks the headers by which browsers know which pages may call.
func TestOnlyAllowedOriginsMayCall(t *testing.T) {
	headersFor := func(t *testing.T, w *world, method, origin string) http.Header {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+connectv1.GraphServiceListBlockedProcedure, strings.NewReader(`{"userId":"ann"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		if method == http.MethodOptions {
			req.Header.Set("Access-Control-Request-Method", "POST")
			req.Header.Set("Access-Control-Request-Headers", "authorization,connect-protocol-version,content-type")
		}
		_, header, _ := w.do(req)
		return header
	}

	worlds := map[string]*world{
		"no origins":  newWorld(t),
		"two origins": newWorld(t, func(o *worldOptions) { o.Origins = []string{"https://app.example", "http://localhost:3000"} }),
		"all origins": newWorld(t, func(o *worldOptions) { o.Origins = []string{"*"} }),
	}
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		for _, c := range []struct {
			allowed, origin, wantOrigin string
		}{
			{"no origins", "https://app.example", ""},
			{"two origins", "https://app.example", "https://app.example"},
			{"two origins", "http://localhost:3000", "http://localhost:3000"},
			{"two origins", "http://localhost:3001", ""},
			{"two origins", "https://app.example.evil", ""},
			{"two origins", "null", ""},
			{"two origins", "", ""},
			{"all origins", "https://whatever.example", "*"},
		} {
			t.Run(fmt.Sprintf("%s allowed, %s from %q", c.allowed, method, c.origin), func(t *testing.T) {
				h := headersFor(t, worlds[c.allowed], method, c.origin)
				if got := h.Get("Access-Control-Allow-Origin"); got != c.wantOrigin {
					t.Errorf("Access-Control-Allow-Origin: got %q, want %q", got, c.wantOrigin)
				}
				if got := h.Get("Access-Control-Allow-Credentials"); got != "" {
					t.Errorf("Access-Control-Allow-Credentials: got %q, want none", got)
				}

				// Only the answer to the question before a call names headers.
				wantAuthorization := c.wantOrigin != "" && method == http.MethodOptions
				if got := h.Get("Access-Control-Allow-Headers"); strings.Contains(got, "authorization") != wantAuthorization {
					t.Errorf("Access-Control-Allow-Headers: got %q, want authorization in it: %v", got, wantAuthorization)
				}

				// Caches must not give the answer to a page of another origin.
				if c.allowed != "no origins" && h.Get("Vary") == "" {
					t.Error("Vary: got none, want a value")
				}
			})
		}
	}

	for _, malformed := range []string{"app.example", "https://app.example/", "https://", "", "https://a b", "https://*.example"} {
		if _, err := newCORS([]string{malformed}); err == nil {
			t.Errorf("newCORS(%q): got no error, want one", malformed)
		}
	}
}

package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// framingTester sends bytes to a server over connections that it opens itself.
type framingTester struct {
	*world
	// loopRequest is a request that the HTTP loop of the service answers, and netHTTPRequest is one
	// that it passes to net/http. They come first on a connection.
	loopRequest, netHTTPRequest string
	// bodies are the bodies of a CheckFollows call by their content type.
	bodies map[string]string
}

func newFramingTester(t *testing.T) *framingTester {
	t.Helper()
	w := newWorld(t, func(o *worldOptions) { o.AllowedHosts = []string{"x"} })
	req := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	jsonBody, err := protojson.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	protoBody := string(marshal(t, req))

	return &framingTester{
		world:          w,
		loopRequest:    http1test.Request(http1test.MethodPath, "", protoBody),
		netHTTPRequest: requestOfType("application/json", http1test.MethodPath, "", string(jsonBody)),
		bodies:         map[string]string{"application/proto": protoBody, "application/json": string(jsonBody)},
	}
}

// requestOfType returns a request like [http1test.Request], but of any content type.
func requestOfType(contentType, path, lines, body string) string {
	return strings.Replace(http1test.Request(path, lines, body), "application/proto", contentType, 1)
}

// dial opens a connection to the server.
func (f *framingTester) dial() *net.TCPConn {
	f.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// checkLastAnswerCloses sends data on a new connection. The first answers must be good ones, as
// many as there are earlier requests in the data. The next answer must close the connection, be
// the last one, and contain all of the texts.
func (f *framingTester) checkLastAnswerCloses(t *testing.T, earlierRequests int, data string, texts ...string) {
	t.Helper()
	answers := http1test.ParseAnswers(http1test.Exchange(t, f.dial(), []byte(data)))
	if len(answers) != earlierRequests+1 {
		t.Errorf("%.200q: got the answers %q, want %d", data, answers, earlierRequests+1)
		return
	}

	for i, answer := range answers[:earlierRequests] {
		if !strings.HasPrefix(answer, "200 OK") {
			t.Errorf("%.200q: got %q as answer %d, want 200 OK", data, answer, i)
		}
	}
	last := answers[earlierRequests]
	if !strings.Contains(last, "] true") { // ParseAnswers writes whether the connection closes
		t.Errorf("%.200q: got the last answer %q, want it to close the connection", data, last)
	}
	for _, text := range texts {
		if !strings.Contains(last, text) {
			t.Errorf("%.200q: got the last answer %q, want %q in it", data, last, text)
		}
	}
}

// earlierRequests returns what may come on a connection first: nothing, or requests that the loop
// or net/http answers.
func (f *framingTester) earlierRequests() []string {
	return []string{"", f.loopRequest, f.netHTTPRequest, f.loopRequest + f.netHTTPRequest + f.loopRequest}
}

// chunked returns a request whose body comes in chunks.
func chunked(path, contentType, lines, chunks string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%sTransfer-Encoding: chunked\r\n\r\n%s", path, contentType, lines, chunks)
}

// chunks returns a body as one chunk and the end of chunks.
func chunks(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// connectionHeaders are the ways in which a request asks to keep the connection or to close it.
var connectionHeaders = []string{"", "Connection: keep-alive\r\n", "Connection: close\r\n"}

// TestMalformedChunksAreTheCallersFault checks that malformed chunks get an error that blames the
// caller, and that nothing after them is read.
func TestMalformedChunksAreTheCallersFault(t *testing.T) {
	f := newFramingTester(t)
	for contentType, body := range f.bodies {
		bodyChunk := fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
		for name, malformed := range map[string]string{
			"size that is no number":            "zz\r\n",
			"empty size":                        "\r\n",
			"negative size":                     "-1\r\n",
			"size with a prefix":                "0x3\r\n",
			"size of 17 digits":                 "fffffffffffffffff\r\n",
			"two sizes":                         "3 3\r\nabc\r\n",
			"long extension":                    "3;" + strings.Repeat("x", 5000) + "\r\n",
			"second size that is no number":     bodyChunk + "zz\r\n",
			"size that ends with LF alone":      bodyChunk + "3\nabc\r\n0\r\n\r\n",
			"chunk that is longer than it says": strings.TrimSuffix(bodyChunk, "\r\n") + "!!" + "0\r\n\r\n",
			"malformed trailer":                 bodyChunk + "0\r\nno trailer\r\n\r\n",
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				for _, header := range connectionHeaders {
					for _, earlier := range f.earlierRequests() {
						request := chunked(http1test.MethodPath, contentType, header, malformed)
						f.checkLastAnswerCloses(t, strings.Count(earlier, "POST"), earlier+request+f.netHTTPRequest+f.loopRequest,
							"400 Bad Request", `"invalid_argument"`, "INVALID_FIELD", "the body is not framed as the header says")
					}
				}
			})
		}
	}

	t.Run("gzipped body", func(t *testing.T) {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = io.WriteString(z, f.bodies["application/json"])
		_ = z.Close()
		firstPart := zipped.String()[:zipped.Len()/2]
		request := chunked(http1test.MethodPath, "application/json", "Content-Encoding: gzip\r\n", fmt.Sprintf("%x\r\n%s!!", len(firstPart), firstPart))
		f.checkLastAnswerCloses(t, 0, request+f.loopRequest, "400 Bad Request", `"invalid_argument"`, "malformed chunked encoding")
	})
	t.Run("request of a stream", func(t *testing.T) {
		request := chunked(connectv1.EventServiceWatchProcedure, "application/connect+json", "", "5\r\n\x00\x00\x00\x00\x02!!")
		f.checkLastAnswerCloses(t, 0, request+f.loopRequest, "200 OK", `"invalid_argument"`, "malformed chunked encoding")
	})
}

// TestTruncatedBodyIsTheCallersFault checks that a body that ends too early, chunked or not, gets
// an error that blames the caller.
func TestTruncatedBodyIsTheCallersFault(t *testing.T) {
	f := newFramingTester(t)
	for contentType := range f.bodies {
		whole := requestOfType(contentType, http1test.MethodPath, "", "abcde")
		for name, request := range map[string]string{
			"within a chunk":        chunked(http1test.MethodPath, contentType, "", "5\r\nab"),
			"within a chunk size":   chunked(http1test.MethodPath, contentType, "", "5"),
			"before Content-Length": whole[:len(whole)-1],
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				for _, earlier := range f.earlierRequests() {
					answers := http1test.ParseAnswers(http1test.ExchangeTCP(t, f.url, earlier+request))
					if len(answers) == 0 {
						t.Errorf("%q: got no answer, want one", earlier+request)
						continue
					}
					last := answers[len(answers)-1]
					if !strings.HasPrefix(last, "400 Bad Request") || !strings.Contains(last, "unexpected EOF") {
						t.Errorf("%q: got the last answer %q, want 400 Bad Request and unexpected EOF", earlier+request, last)
					}
				}
			})
		}
	}
}

// TestTwoFramingsCloseTheConnection checks that a message with two framings closes its connection
// after the answer, whichever messages came before, and that nothing after it is read.
func TestTwoFramingsCloseTheConnection(t *testing.T) {
	f := newFramingTester(t)

	// A proxy in front of the service may believe the other framing, and take this follow of bob
	// for a part of the body. It must have no effect.
	publishFollow := marshal(t, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("eve", "bob")}})
	smuggled := http1test.Request(connectv1.EventServicePublishProcedure, "", string(publishFollow)) + http1test.LastRequest

	for contentType, body := range f.bodies {
		for name, length := range map[string]string{
			"true length":             fmt.Sprint("Content-Length: ", len(body)),
			"length 0":                "Content-Length: 0",
			"lower case, no space":    "content-length:3",
			"upper case, white space": "CONTENT-LENGTH: \t99 ",
			"two lengths":             "Content-Length: 3\r\nContent-Length: 3",
		} {
			t.Run(contentType+" "+name, func(t *testing.T) {
				for _, header := range connectionHeaders {
					lengthFirst := chunked(http1test.MethodPath, contentType, header+length+"\r\n", chunks(body))
					lengthLast := chunked(http1test.MethodPath, contentType, header, chunks(body))
					lengthLast = strings.Replace(lengthLast, ": chunked\r\n", ": chunked\r\n"+length+"\r\n", 1)
					for _, earlier := range f.earlierRequests() {
						earlierRequests := strings.Count(earlier, "POST")
						f.checkLastAnswerCloses(t, earlierRequests, earlier+lengthFirst+smuggled, "200 OK")
						f.checkLastAnswerCloses(t, earlierRequests, earlier+lengthLast+smuggled, "200 OK")
					}
				}
			})
		}
	}

	// Requests that are no calls of methods, or of HTTP/1.0, close the connection as well.
	const twoFramings = "Host: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
	for name, c := range map[string]struct{ request, status string }{
		"call by HTTP/1.0": {
			"POST " + http1test.MethodPath + " HTTP/1.0\r\nContent-Type: application/json\r\n" + strings.Replace(twoFramings, ": 3", ": 2", 1) + "{}",
			"400 Bad Request",
		},
		"page by HTTP/1.0": {"GET /healthz HTTP/1.0\r\n" + twoFramings + "abc", "200 OK"},
		"page by HTTP/1.0, only chunked": {
			"GET /healthz HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n", "200 OK",
		},
		"page":              {"GET /healthz HTTP/1.1\r\n" + twoFramings + chunks("abc"), "200 OK"},
		"unknown path":      {"POST /nothing HTTP/1.1\r\n" + twoFramings + chunks("abc"), "404 Not Found"},
		"OPTIONS of server": {"OPTIONS * HTTP/1.1\r\n" + twoFramings + chunks("abc"), "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			f.checkLastAnswerCloses(t, 0, c.request+smuggled, c.status)
		})
	}

	if n := f.followersOf("bob"); n != 0 {
		t.Errorf("got %v followers of bob, want none: a request after the two framings was read", n)
	}
}

// TestChunksKeepTheConnection checks that a chunked message without a length keeps its connection
// open, also between messages with a length.
func TestChunksKeepTheConnection(t *testing.T) {
	f := newFramingTester(t)
	conn := f.dial()
	defer conn.Close()

	r := bufio.NewReader(conn)
	chunkedProto := chunked(http1test.MethodPath, "application/proto", "", chunks(f.bodies["application/proto"]))
	for i, request := range []string{
		f.loopRequest, chunkedProto, f.netHTTPRequest, f.loopRequest,
		// Headers whose names resemble Content-Length are no framing.
		chunked(http1test.MethodPath, "application/json", "X-Content-Length: 3\r\nContent-Lengths: 3\r\n", chunks(f.bodies["application/json"])),
		chunked(http1test.MethodPath, "application/json", "", "5\r\nhello\r\n0\r\n\r\n"), f.netHTTPRequest,
		chunkedProto,
	} {
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("request %d: got error %v, want an answer", i, err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil {
			t.Errorf("request %d: got error %v from the body, want none", i, err)
		}
		if res.Close {
			t.Errorf("request %d: got an answer that closes the connection, want it kept open", i)
		}
	}
}

// TestEncodedPathsAreRefused checks that a method or a page has only one spelling of its path,
// because a proxy that forbids the path compares characters.
func TestEncodedPathsAreRefused(t *testing.T) {
	f := newFramingTester(t)
	bodies := map[string]string{
		"application/proto":    f.bodies["application/proto"],
		"application/json":     f.bodies["application/json"],
		"application/grpc-web": string(marshal(t, &skeinv1.WatchRequest{})),
	}
	for _, path := range []string{
		"/skein.v1.GraphService/Check%46ollows", "/%73kein.v1.GraphService/CheckFollows", "/skein%2Ev1.GraphService/CheckFollows",
		"/skein.v1.GraphService%2fCheckFollows", "/%2fskein.v1.GraphService/CheckFollows", "/skein.v1.GraphService/CheckFollow%73?x=y",
		"http://x/skein.v1.GraphService/Check%46ollows", "/skein.v1.EventService/W%61tch", "/skein.v1.AdminService/%45raseUser",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInf%6F", "/grpc.health.v1.Health/%43heck", "/metric%73", "/health%7A",
	} {
		isPage := strings.Contains(path, "metric") || strings.Contains(path, "health%")
		for contentType, body := range bodies {
			for _, earlier := range f.earlierRequests() {
				// A request that closes the connection would have no answers after it.
				for _, header := range []string{"", "Connection: keep-alive\r\n"} {
					request := requestOfType(contentType, path, header, body)
					if isPage {
						request = strings.Replace(request, "POST", "GET", 1)
					}
					answers := http1test.ParseAnswers(http1test.Exchange(t, f.dial(), []byte(earlier+request+f.loopRequest+http1test.LastRequest)))

					// The request is refused, and the two after it are answered.
					n := strings.Count(earlier, "POST")
					if len(answers) != n+3 || !strings.HasPrefix(answers[n], "404 Not Found") || !strings.HasPrefix(answers[n+1], "200 OK") {
						t.Errorf("%s after %d requests: got the answers %q, want %d with 404 and then 200 at %d", path, n, answers, n+3, n)
					}
				}
			}
		}
	}
}

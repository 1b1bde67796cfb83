package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
)

// Connect's handlers refuse a malformed timeout, an unknown compression and another version of the protocol before they call a method, with
// errors that name neither the field nor the reason. checkProtocol refuses the same calls first, with the errors of skein.

// checkProtocol returns why the handler of a method would refuse the headers or the query of a call, or nil if it would not.
func (s *Server) checkProtocol(r *http.Request) *apierror.Failure {
	if r.Method == http.MethodGet && s.streams[r.URL.Path] {
		return nil // Server-Sent Events, which check their own query (sse.go)
	}
	if f := checkTimeout(r); f != nil {
		return f
	}
	if f := checkCompression(r); f != nil {
		return f
	}
	return checkVersion(r)
}

func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// Headers of the Connect protocol, and the one compression that the server knows.
const (
	timeoutHeader = "Connect-Timeout-Ms"
	versionHeader = "Connect-Protocol-Version"
	gzipEncoding  = "gzip"
)

const (
	// maxTimeoutBytes is the longest Connect-Timeout-Ms, and maxGRPCTimeout the largest number in a Grpc-Timeout, as the protocols say.
	maxTimeoutBytes = 10
	maxGRPCTimeout  = 99_999_999
)

// checkTimeout checks the timeout that the caller gives in the header of its protocol.
func checkTimeout(r *http.Request) *apierror.Failure {
	if isGRPC(r) {
		value := r.Header.Get("Grpc-Timeout")
		if value == "" {
			return nil
		}
		amount, err := strconv.ParseInt(value[:len(value)-1], 10, 64)
		if unit := rune(value[len(value)-1]); err != nil || amount < 0 || amount > maxGRPCTimeout || !strings.ContainsRune("HMSmun", unit) {
			return apierror.Invalid(apierror.InvalidField("Grpc-Timeout",
				"must be 1 to 8 digits and a unit, which is H, M, S, m, u or n, as in 500m; it is %.80q", value))
		}
		return nil
	}
	value := r.Header.Get(timeoutHeader)
	if value == "" {
		return nil
	}
	if millis, err := strconv.ParseInt(value, 10, 64); err != nil || millis < 0 || len(value) > maxTimeoutBytes {
		return apierror.Invalid(apierror.InvalidField(timeoutHeader,
			"must be a number of milliseconds of 1 to 10 digits, as in 500; it is %.80q", value))
	}
	return nil
}

// checkCompression checks the compression of the request, which is named by a header or, for a GET, in the query.
func checkCompression(r *http.Request) *apierror.Failure {
	field, _ := encodingHeader(r)
	value := r.Header.Get(field)
	if r.Method == http.MethodGet {
		field = "compression"
		value = r.URL.Query().Get(field)
	}
	switch value {
	case "", "identity", gzipEncoding:
		return nil
	}
	f := apierror.Invalid(apierror.InvalidField(field, "must be gzip or identity; it is %.80q", value))
	f.Code = connect.CodeUnimplemented // as the protocols demand
	return f
}

// checkVersion checks the version of the Connect protocol. Clients may leave it out.
func checkVersion(r *http.Request) *apierror.Failure {
	if isGRPC(r) {
		return nil
	}
	if r.Method == http.MethodGet {
		query := r.URL.Query()
		if version := query.Get("connect"); version != "" && version != "v1" {
			return apierror.Invalid(apierror.InvalidField("connect", "must be v1 in the query of a GET; it is %.80q", version))
		}
		if query.Has("encoding") && !query.Has("message") {
			return apierror.Invalid(apierror.InvalidField("message",
				"must be given in the query of a GET, as in encoding=json&message=%%7B%%22userId%%22%%3A%%22ann%%22%%7D"))
		}
		return nil
	}
	if version := r.Header.Get(versionHeader); version != "" && version != "1" {
		return apierror.Invalid(apierror.InvalidField(versionHeader, "must be 1; it is %.80q", version))
	}
	return nil
}

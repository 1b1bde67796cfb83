package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
)

// Connect's handlers refuse a malformed timeout, an unknown compression and an unknown protocol
// version before they call a method, with errors that name neither the field nor the reason.
// checkProtocol refuses the same calls earlier, with skein's own errors.

// checkProtocol returns the reason why the handler of a method would refuse the headers or the
// query of a call, or nil if it would accept them.
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

// isGRPC reports whether a call uses gRPC or gRPC-Web.
func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// Headers of the Connect protocol, and the only compression that the server supports.
const (
	timeoutHeader = "Connect-Timeout-Ms"
	versionHeader = "Connect-Protocol-Version"
	gzipEncoding  = "gzip"
)

const (
	// maxTimeoutBytes is the largest number of digits that the Connect protocol allows in
	// Connect-Timeout-Ms.
	maxTimeoutBytes = 10
	// maxGRPCTimeout is the largest number that gRPC allows in Grpc-Timeout.
	maxGRPCTimeout = 99_999_999
)

// checkTimeout checks the timeout header of the call's protocol.
func checkTimeout(r *http.Request) *apierror.Failure {
	if isGRPC(r) {
		value := r.Header.Get("Grpc-Timeout")
		if value == "" {
			return nil
		}
		digits := value[:len(value)-1]
		unit := rune(value[len(value)-1])
		amount, err := strconv.ParseInt(digits, 10, 64)
		isValid := err == nil && amount >= 0 && amount <= maxGRPCTimeout && strings.ContainsRune("HMSmun", unit)
		if !isValid {
			return apierror.Invalid(apierror.InvalidField("Grpc-Timeout",
				"must be 1 to 8 digits and a unit, which is H, M, S, m, u or n, as in 500m; it is %.80q", value))
		}
		return nil
	}
	value := r.Header.Get(timeoutHeader)
	if value == "" {
		return nil
	}
	millis, err := strconv.ParseInt(value, 10, 64)
	isValid := err == nil && millis >= 0 && len(value) <= maxTimeoutBytes
	if !isValid {
		return apierror.Invalid(apierror.InvalidField(timeoutHeader,
			"must be a number of milliseconds of 1 to 10 digits, as in 500; it is %.80q", value))
	}
	return nil
}

// checkCompression checks the compression of the request, which a header names or, for a GET, the
// query.
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
	f.Code = connect.CodeUnimplemented // the code that the protocols require
	return f
}

// checkVersion checks the version of the Connect protocol, which clients may omit, and that a GET
// has a message.
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

// Package apierror is an error as the API tells it: a code, a reason for programs, a text for people, the fields at fault, and when to
// try again.
//
// A method returns a [Failure], or any other error, which [Of] maps to one by the one table (errors.go). [Failure.ConnectError]
// encodes it with its details, as google.rpc.ErrorInfo, BadRequest and RetryInfo (https://google.aip.dev/193).
package apierror

// Package apierror defines errors as the API returns them: a code, a reason for programs, a text
// for people, the invalid fields, and the time after which to retry.
//
// A method returns either a [Failure] or any other error, which [Of] maps to a Failure by one table
// (errors.go). [Failure.ConnectError] encodes the failure with its details: google.rpc.ErrorInfo,
// BadRequest and RetryInfo (https://google.aip.dev/193).
package apierror

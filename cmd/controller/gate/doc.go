// Package gate keeps callers out of an HTTP server that the API server does not know by their bearer token, or does not
// let get the path.
//
// However many tokens come, the API server is asked about a bounded number of them. The gate keeps no record of
// callers.
package gate

// Package gate keeps those out of an HTTP server whom the API server does not know by their bearer token, or does not let
// get the path.
//
// However many tokens come, the API server is asked about a bounded number of them. The gate says nothing of who came and why.
package gate

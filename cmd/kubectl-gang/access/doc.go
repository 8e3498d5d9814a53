// Package access is how the commands of kubectl gang reach a cluster: the flags that say which, the client,
// lists that come page by page, and what to do about a refusal.
//
// A kind that a cluster does not serve is no error, but a note on stderr. It writes nothing by itself.
package access

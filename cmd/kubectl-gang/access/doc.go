// Package access is how the commands of kubectl gang reach a cluster: the flags that say which, the client, and
// lists that come page by page.
//
// What a cluster does not serve is no error, but a note on stderr. It writes nothing by itself.
package access

// Package must ends tests whose steps fail.
package must

import "testing"

// Succeed ends the test unless err is nil.
func Succeed(tb testing.TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatal(err)
	}
}

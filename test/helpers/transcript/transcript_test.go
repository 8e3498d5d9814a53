package transcript

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOf(t *testing.T) {
	got := Of("$ no command\n\n```\n$ ls -l\na\n\n  b\n$ true\n```\nno output\n```sh\necho\n```\n```console\n$ pwd\n/\n```\n")
	want := []Command{{"ls -l", "a\n\n  b\n"}, {"true", ""}, {"pwd", "/\n"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

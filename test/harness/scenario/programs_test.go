package scenario

import (
	"slices"
	"testing"
)

// TestCommandLine: the command line of a program has the variables of the runner in it.
func TestCommandLine(t *testing.T) {
	r := &run{Runner: &Runner{Variables: map[string]string{"CERTS": "/certs"}}, dir: "/here"}
	for sentence, c := range map[string]struct {
		program Program
		want    []string
	}{
		"arguments":      {Program{Args: []string{"--config=$DIR/a.yaml", "--certs=$CERTS"}}, []string{"/bin/a", "--config=/here/a.yaml", "--certs=/certs"}},
		"an environment": {Program{Args: []string{"-v"}, Env: map[string]string{"TMPDIR": "$DIR/b", "A": "$CERTS"}}, []string{"env", "A=/certs", "TMPDIR=/here/b", "/bin/a", "-v"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := r.commandLine(&c.program, "/bin/a"); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

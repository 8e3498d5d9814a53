package explain

import (
	"fmt"
	"strconv"

	"github.com/lockstep-sh/lockstep/pkg/scheduler"
)

// lineWords words where a gang stands among those that wait.
func lineWords(line *scheduler.Line) string {
	in := "Among the gangs that are complete and would still wait"
	if line.Queue != "" {
		in = "Among those of queue " + line.Queue + " that are complete and would still wait"
	}
	text := fmt.Sprintf("%s it is %s of %d", in, ordinal(line.At), line.Of)
	if line.At > 1 && line.First != "" {
		text += "; " + line.First + " comes first"
	}
	return text + "\n"
}

// ordinal returns a number from 1 as people count: 1st, 2nd, 3rd, 4th.
func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

package podlist

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// envelope begins what Kubernetes encodes as protobuf: a runtime.Unknown follows.
	envelope = "k8s\x00"
	// The fields of a runtime.Unknown and of a PodList that are looked at. All are of the type that has a length.
	kindField, rawField       = 1, 2
	metadataField, itemsField = 1, 2
	hasLength                 = 2
	// atOnce is how much is read at once, and the least room for pods.
	atOnce, leastPods = 64 << 10, 64
)

// Decode reads a list of pods, and calls a function with each: as they come where that is protobuf, and at the end of JSON.
func Decode(from io.Reader, listed func(*v1.Pod)) (*v1.PodList, error) {
	r := &reader{buffer: bufio.NewReaderSize(from, atOnce), listed: listed}
	list := &v1.PodList{}
	if begin, _ := r.buffer.Peek(len(envelope)); string(begin) != envelope { // what is shorter is no list either
		data, err := io.ReadAll(r.buffer)
		switch {
		case err != nil:
		case len(data) == 0:
			err = io.ErrUnexpectedEOF
		default:
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(data, nil, list)
		}
		if err != nil {
			return nil, fmt.Errorf("reading a list: %w", err)
		}
		for i := range list.Items {
			listed(&list.Items[i])
		}
		return list, nil
	}
	if err := r.skip(len(envelope)); err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	kind := runtime.TypeMeta{}
	for complete := false; ; {
		field, length, err := r.next()
		switch {
		case errors.Is(err, io.EOF) && complete:
			return list, nil
		case err != nil:
			err = within(err)
		case field == kindField:
			err = r.message(length, kind.Unmarshal)
		case field == rawField && kind.Kind != "PodList":
			err = fmt.Errorf("it is a %q", kind.Kind)
		case field == rawField:
			complete, err = true, r.list(list, length)
		default:
			err = r.skip(length)
		}
		if err != nil {
			return nil, fmt.Errorf("reading a list: %w", err)
		}
	}
}

// reader reads protobuf.
type reader struct {
	buffer *bufio.Reader
	listed func(*v1.Pod)
	// read counts bytes.
	read int
	// large is for what does not fit in the buffer.
	large bytes.Buffer
}

// next reads the head of a field. It returns io.EOF where there is none.
func (r *reader) next() (field, length int, err error) {
	tag, err := r.number()
	if err != nil {
		return 0, 0, err
	}
	if tag&7 != hasLength {
		return 0, 0, fmt.Errorf("field %d is of type %d", tag>>3, tag&7)
	}
	length, err = r.number()
	return tag >> 3, length, within(err)
}

// within returns the error of a read that came before the end.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *reader) number() (int, error) {
	n, err := binary.ReadUvarint(counting{r})
	if err == nil && n > 1<<40 {
		err = fmt.Errorf("a length or tag is %d", n)
	}
	return int(n), err
}

// counting reads bytes of a reader.
type counting struct{ *reader }

// ReadByte implements io.ByteReader.
func (c counting) ReadByte() (byte, error) {
	b, err := c.buffer.ReadByte()
	if err == nil {
		c.read++
	}
	return b, err
}

func (r *reader) skip(length int) error {
	n, err := r.buffer.Discard(length)
	r.read += n
	return within(err)
}

// message decodes a message of some length by a function that may not keep the bytes.
func (r *reader) message(length int, decode func([]byte) error) error {
	if length <= r.buffer.Size() {
		data, err := r.buffer.Peek(length)
		if err == nil {
			err = decode(data)
		}
		if err == nil {
			return r.skip(length)
		}
		return within(err)
	}
	r.large.Reset()
	n, err := io.CopyN(&r.large, r.buffer, int64(length))
	r.read += int(n)
	if err != nil {
		return within(err)
	}
	return decode(r.large.Bytes())
}

// list reads a PodList of some length.
func (r *reader) list(list *v1.PodList, length int) error {
	begin, end := r.read, r.read+length
	for r.read < end {
		field, length, err := r.next()
		switch {
		case err != nil:
			err = within(err)
		case length > end-r.read:
			err = io.ErrUnexpectedEOF
		case field == metadataField:
			err = r.message(length, list.ListMeta.Unmarshal)
		case field == itemsField:
			list.Items = roomFor(list.Items, r.read-begin, end-r.read)
			at := len(list.Items)
			list.Items = list.Items[:at+1]
			if err = r.message(length, list.Items[at].Unmarshal); err == nil {
				r.listed(&list.Items[at])
			}
		default:
			err = r.skip(length)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// roomFor makes room for another pod: where there is none, for all that are still to come if they are like those before. Pods are
// large, so that it costs to move them.
func roomFor(pods []v1.Pod, read, left int) []v1.Pod {
	if len(pods) < cap(pods) {
		return pods
	}
	if len(pods) == 0 {
		return make([]v1.Pod, 0, leastPods)
	}
	return slices.Grow(pods, leastPods+int(float64(len(pods))*float64(left)/float64(read)))
}

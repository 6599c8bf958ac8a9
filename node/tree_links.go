package node

import (
	"errors"

	"mover/fileio"
	"mover/job"
)

// maxLinks bounds the inodes with several names that are remembered for
// preserve: hardlinks; further ones arrive as files of their own.
const maxLinks = 1 << 20

// links are the names of a tree's inodes that have several. The first name
// travels as a file, the others as hard links to it, after it: but only if the
// destination has published it. What it kept instead under that name, by policy
// or because the file failed, is other content.
type links struct {
	first map[fileio.Inode]string // what the others are links to
	apart map[string]struct{}     // first names that were not published
	waits *spool                  // the others
	again *spool                  // those whose first name was not published, with the next one as target
}

// newLinks makes an empty set in the state directory.
func newLinks(dir string) (l *links, err error) {
	l = &links{first: map[fileio.Inode]string{}, apart: map[string]struct{}{}}
	if l.waits, err = newSpool(dir); err != nil {
		return nil, err
	}
	if l.again, err = newSpool(dir); err != nil {
		l.waits.close()
		return nil, err
	}
	return l, nil
}

func (l *links) close() {
	l.waits.close()
	l.again.close()
}

// several reports whether e is a name that may have to become a hard link.
func (t *tree) several(e *fileio.Entry) bool {
	return e.Kind == fileio.KindFile && e.NLink > 1 && t.spec.Preserves(job.PreserveHardlinks)
}

// firstName returns the name that e is to be a hard link to, and makes e that
// name if there is none yet.
func (t *tree) firstName(e *fileio.Entry) (name string, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, is = t.links.first[e.Inode]
	if !is && len(t.links.first) < maxLinks {
		t.links.first[e.Inode] = e.Rel
	}
	return name, is
}

// unpublished takes note that the destination does not have e's content under
// e's name. With if_different it kept what is the same.
func (t *tree) unpublished(e *fileio.Entry, kept bool) {
	if !t.several(e) || kept && t.spec.Overwrite == job.OverwriteIfDifferent {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.links.first[e.Inode] == e.Rel {
		t.links.apart[e.Rel] = struct{}{}
	}
}

// published reports whether a name that others are links to was not kept back.
func (t *tree) published(first string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, apart := t.links.apart[first]
	return !apart
}

// waiting is a name that waits to become a hard link, with what it takes to
// send it as a file after all.
func (t *tree) waiting(e *fileio.Entry, first string) spooled {
	d := t.describe(*e)
	d.Target = []byte(first)
	return spooled{GroupEntry: d, Inode: e.Inode}
}

// sendLinks sends the hard links, after the files that they name. Where such a
// file was not published, the next of its names becomes the file, and the rest
// wait for that.
func (t *tree) sendLinks() error {
	next := map[string]string{}
	err := t.links.waits.each(func(s spooled) error {
		first := string(s.Target)
		if t.published(first) {
			return t.sendLink(s)
		}
		if name, ok := next[first]; ok {
			s.Target = []byte(name)
			return t.links.again.put(s)
		}
		next[first] = string(s.Path)
		t.mu.Lock()
		t.links.first[s.Inode] = string(s.Path)
		t.mu.Unlock()
		return t.sendAsFile(s)
	})
	return errors.Join(err, t.flush())
}

// sendRestOfLinks sends what waited for another name. If the destination has no
// use for that one either, each goes as a file: an inode may have 65000 names,
// and trying one after the other would take as many rounds.
func (t *tree) sendRestOfLinks() error {
	err := t.links.again.each(func(s spooled) error {
		if t.published(string(s.Target)) {
			return t.sendLink(s)
		}
		return t.sendAsFile(s)
	})
	return errors.Join(err, t.flush())
}

func (t *tree) sendLink(s spooled) error {
	d := job.GroupEntry{Kind: job.EntryHardlink, Path: s.Path, Target: s.Target}
	return t.addDescribed(d, fileio.Entry{Rel: string(s.Path), Kind: fileio.KindHardLink})
}

func (t *tree) sendAsFile(s spooled) error {
	e := s.file()
	t.expect(e.Size, 0)
	return t.sendContent(e)
}

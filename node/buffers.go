package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"mover/api"
	v1 "mover/api/v1"
	"mover/buffer"
	"mover/job"
	"mover/reason"
)

// configOwner owns the buffers of the configuration.
const configOwner = "config"

// openBuffers brings back the buffers of earlier processes and makes those of
// the configuration. One that cannot be had is logged, and the node runs
// without it.
func (n *Node) openBuffers() error {
	r, problems, err := buffer.Open(context.Background(), buffer.Config{Dir: n.cfg.Node.StateDir, Node: n.cfg.Node.Name, Logger: n.log,
		Limits: buffer.Limits{MaxBytes: int64(n.cfg.Memory.Buffers)}})
	if err != nil {
		return err
	}
	n.buffers = r
	for _, p := range problems {
		n.log.Warn("buffer", "name", p.Buffer, "is", p.Kind, "error", p.Err)
	}
	for name, c := range n.cfg.Buffers {
		spec := buffer.Spec{Name: name, Bytes: int64(c.Bytes), PageSize: buffer.PageSize(c.PageSize), NUMANode: c.NUMANode,
			Mode: c.FileMode(), Group: c.Group, Read: c.Read, Write: c.Write, Owner: configOwner}
		if _, _, err := r.Create(context.Background(), spec); err != nil {
			n.log.Error("a buffer of the configuration cannot be made; jobs with it fail", "buffers", name, "error", err)
		}
	}
	return nil
}

// fileMode reads permission bits as a configuration or a request writes them.
func fileMode(text string) (fs.FileMode, error) {
	if text == "" {
		return 0, nil
	}
	bits, err := strconv.ParseUint(text, 8, 9)
	if err != nil {
		return 0, &job.FieldError{Field: "mode", Problem: "must be octal permission bits, such as 0660"}
	}
	return fs.FileMode(bits), nil
}

// bufferAPI is the registry as the HTTP API shows it. It implements api.Buffers.
type bufferAPI struct{ node *Node }

// List implements api.Buffers.
func (b bufferAPI) List(context.Context) ([]v1.Buffer, error) {
	out := []v1.Buffer{}
	for _, i := range b.node.buffers.List() {
		out = append(out, showBuffer(i))
	}
	return out, nil
}

// Get implements api.Buffers.
func (b bufferAPI) Get(_ context.Context, name string) (v1.Buffer, error) {
	i, err := b.node.buffers.Get(name)
	return showBuffer(i), bufferError(err)
}

// Create implements api.Buffers.
func (b bufferAPI) Create(ctx context.Context, name string, s v1.BufferSpec, owner string) (v1.Buffer, bool, error) {
	spec := buffer.Spec{Name: name, Bytes: int64(s.Bytes), PageSize: buffer.PageSize(s.PageSize), NUMANode: buffer.AnyNode,
		Group: s.Group, Read: s.Read, Write: s.Write, Owner: owner}
	if s.NUMANode != nil {
		spec.NUMANode = *s.NUMANode
	}
	var err error
	if spec.Mode, err = fileMode(s.Mode); err != nil {
		return v1.Buffer{}, false, err
	}
	i, created, err := b.node.buffers.Create(ctx, spec)
	return showBuffer(i), created, bufferError(err)
}

// Delete implements api.Buffers.
func (b bufferAPI) Delete(ctx context.Context, name string) error {
	if _, configured := b.node.cfg.Buffers[name]; configured {
		return api.ErrBufferConfig
	}
	return bufferError(b.node.buffers.Delete(ctx, name))
}

// Open implements api.Buffers.
func (b bufferAPI) Open(_ context.Context, name string, r api.BufferRange, holder string) (api.BufferData, error) {
	i, err := b.node.buffers.Get(name)
	if err != nil {
		return nil, bufferError(err)
	}
	if r.Length < 0 {
		r.Length = max(i.Bytes-r.Offset, 0)
	}
	l, err := b.node.buffers.Lease(buffer.LeaseRequest{Name: name, Offset: r.Offset, Length: r.Length, Exclusive: r.Write, Holder: holder})
	if err != nil {
		return nil, bufferError(err)
	}
	if i, err = b.node.buffers.Get(name); err != nil {
		l.Release()
		return nil, bufferError(err)
	}
	return &bufferData{lease: l, registry: b.node.buffers, name: name, generation: i.Generation}, nil
}

// bufferError is an error of the registry as the API knows them.
func bufferError(err error) error {
	var outside *buffer.RangeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &outside):
		return &job.FieldError{Field: "range", Problem: outside.Error()}
	case errors.Is(err, buffer.ErrNotFound):
		return api.ErrNoBuffer
	case errors.Is(err, buffer.ErrConflict):
		return api.ErrBufferConflict
	case errors.Is(err, buffer.ErrBadSpec):
		return &job.FieldError{Field: "buffer", Problem: err.Error()}
	case errors.Is(err, buffer.ErrNoMount):
		return reason.New(reason.NoSpace, "%w", err)
	case errors.Is(err, buffer.ErrForeign):
		return reason.New(reason.DestExists, "%w", err)
	case errors.Is(err, buffer.ErrBadState):
		return &job.StoreError{Err: err}
	}
	return err
}

func showBuffer(i buffer.Info) v1.Buffer {
	out := v1.Buffer{
		Name: i.Name, Path: i.Path, Bytes: i.Bytes, MappedBytes: i.MappedBytes, PageBytes: i.PageBytes, PageReason: i.PageReason,
		NUMANode: i.NUMANode, Generation: i.Generation, Mode: fmt.Sprintf("%04o", i.Mode.Perm()), Group: i.Group, Owner: i.Owner,
		Read: list(i.Read), Write: list(i.Write), CreatedAt: i.CreatedAt, Leases: []v1.BufferLease{}, Error: i.Problem,
		Configured: i.Owner == configOwner,
	}
	for _, l := range i.Leases {
		out.Leases = append(out.Leases, v1.BufferLease{Holder: l.Holder, Offset: l.Offset, Length: l.Length, Exclusive: l.Exclusive, Since: l.Since})
	}
	return out
}

// bufferData is a leased range with offsets of the whole buffer.
type bufferData struct {
	lease      *buffer.Lease
	registry   *buffer.Registry
	name       string
	generation uint64
}

// Generation implements api.BufferData.
func (d *bufferData) Generation() uint64 { return d.generation }

// ReadAt implements api.BufferData.
func (d *bufferData) ReadAt(p []byte, offset int64) (int, error) {
	return d.lease.ReadAt(p, offset-d.lease.Info().Offset)
}

// WriteAt implements api.BufferData.
func (d *bufferData) WriteAt(p []byte, offset int64) (int, error) {
	return d.lease.WriteAt(p, offset-d.lease.Info().Offset)
}

// Close implements api.BufferData.
func (d *bufferData) Close() (uint64, error) {
	d.lease.Release()
	i, err := d.registry.Get(d.name)
	if err != nil {
		return d.generation, nil // deleted at once; what was written had this one at least
	}
	return i.Generation, nil
}

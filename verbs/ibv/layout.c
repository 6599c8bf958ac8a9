// The structs that Go fills in place have libibverbs' own layout, or this does
// not compile.
#include "library.h"

#ifdef HAVE_VERBS_H

#include <stddef.h>

// Go writes immediates and the unions with little-endian shifts.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "amd64 and arm64 only");
_Static_assert(sizeof(void *) == 8, "64 bit only");

#define SAME(a, fa, b, fb) _Static_assert(offsetof(struct a, fa) == offsetof(struct b, fb), #b "." #fb)
_Static_assert(sizeof(struct mv_sge) == sizeof(struct ibv_sge), "ibv_sge");
SAME(mv_sge, addr, ibv_sge, addr);
SAME(mv_sge, length, ibv_sge, length);
SAME(mv_sge, lkey, ibv_sge, lkey);
_Static_assert(sizeof(struct mv_send_wr) == sizeof(struct ibv_send_wr), "ibv_send_wr");
SAME(mv_send_wr, wr_id, ibv_send_wr, wr_id);
SAME(mv_send_wr, next, ibv_send_wr, next);
SAME(mv_send_wr, sg_list, ibv_send_wr, sg_list);
SAME(mv_send_wr, num_sge, ibv_send_wr, num_sge);
SAME(mv_send_wr, opcode, ibv_send_wr, opcode);
SAME(mv_send_wr, send_flags, ibv_send_wr, send_flags);
SAME(mv_send_wr, imm, ibv_send_wr, imm_data);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.rdma.remote_addr);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.rdma.rkey);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.atomic.remote_addr);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.atomic.compare_add);
SAME(mv_send_wr, arg[2], ibv_send_wr, wr.atomic.swap);
SAME(mv_send_wr, arg[3], ibv_send_wr, wr.atomic.rkey);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.ud.ah);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.ud.remote_qpn);
_Static_assert(offsetof(struct ibv_send_wr, wr.ud.remote_qkey) == offsetof(struct mv_send_wr, arg[1]) + 4, "wr.ud.remote_qkey");
_Static_assert(sizeof(struct mv_recv_wr) == sizeof(struct ibv_recv_wr), "ibv_recv_wr");
SAME(mv_recv_wr, wr_id, ibv_recv_wr, wr_id);
SAME(mv_recv_wr, next, ibv_recv_wr, next);
SAME(mv_recv_wr, sg_list, ibv_recv_wr, sg_list);
SAME(mv_recv_wr, num_sge, ibv_recv_wr, num_sge);
_Static_assert(sizeof(struct mv_wc) == sizeof(struct ibv_wc), "ibv_wc");
SAME(mv_wc, wr_id, ibv_wc, wr_id);
SAME(mv_wc, status, ibv_wc, status);
SAME(mv_wc, opcode, ibv_wc, opcode);
SAME(mv_wc, vendor_err, ibv_wc, vendor_err);
SAME(mv_wc, byte_len, ibv_wc, byte_len);
SAME(mv_wc, imm, ibv_wc, imm_data);
SAME(mv_wc, qp_num, ibv_wc, qp_num);
SAME(mv_wc, src_qp, ibv_wc, src_qp);
SAME(mv_wc, wc_flags, ibv_wc, wc_flags);
_Static_assert(sizeof(struct mv_gid_entry) == sizeof(struct ibv_gid_entry), "ibv_gid_entry");
SAME(mv_gid_entry, gid, ibv_gid_entry, gid);
SAME(mv_gid_entry, index, ibv_gid_entry, gid_index);
SAME(mv_gid_entry, port, ibv_gid_entry, port_num);
SAME(mv_gid_entry, type, ibv_gid_entry, gid_type);

#endif

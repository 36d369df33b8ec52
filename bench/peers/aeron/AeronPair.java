import io.aeron.*;
import io.aeron.driver.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.agrona.*;
import org.agrona.concurrent.*;

/**
 * Aeron over UDP on loopback, under the loops of the bench: each process has a media driver that runs in the thread which spins.
 * Arguments: rank, the folder of this process's driver, the first of two ports, {@code latency} or {@code bandwidth}, 1 for a quick run.
 * Rank 0 prints for each size: bytes, the median of the runs in ns one way or in GB/s, the least, the greatest, the number of runs.
 */
public final class AeronPair {
    private static final int[] SIZES = {8, 64, 1024, 4096, 65536, 1 << 20};

    private final MediaDriver driver;
    private final Aeron aeron;
    private final AgentInvoker driverInvoker, clientInvoker;
    private final ExclusivePublication out;
    private final Image in;
    private final FragmentAssembler assembler;
    private final UnsafeBuffer source = new UnsafeBuffer(ByteBuffer.allocateDirect(1 << 20));
    private long taken, sum;

    private AeronPair(int rank, String folder, int port) {
        driver = MediaDriver.launch(new MediaDriver.Context()
            .threadingMode(ThreadingMode.INVOKER).aeronDirectoryName(folder).dirDeleteOnStart(true).dirDeleteOnShutdown(true)
            .socketRcvbufLength(2 << 20).socketSndbufLength(2 << 20).initialWindowLength(2 << 20).warnIfDirectoryExists(false));
        driverInvoker = driver.sharedAgentInvoker();
        aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(folder).useConductorAgentInvoker(true)
            .driverAgentInvoker(driverInvoker));
        clientInvoker = aeron.conductorAgentInvoker();
        String channel = "aeron:udp?mtu=8k|term-length=16m|endpoint=127.0.0.1:";
        Subscription subscription = aeron.addSubscription(channel + (port + rank), 1);
        out = aeron.addExclusivePublication(channel + (port + 1 - rank), 1);
        long end = System.nanoTime() + 20_000_000_000L;
        while (subscription.imageCount() == 0 || !out.isConnected()) {
            work();
            if (System.nanoTime() > end) throw new IllegalStateException("the other process does not come");
        }
        in = subscription.imageAtIndex(0);
        assembler = new FragmentAssembler((buffer, at, length, header) -> {
            long words = 0;
            for (int i = 0; i < length; i += 8) words += buffer.getLong(at + i);
            sum = words;
            taken++;
        });
    }

    private void work() {
        driverInvoker.invoke();
        clientInvoker.invoke();
    }

    private void send(int bytes) {
        long outcome;
        while ((outcome = out.offer(source, 0, bytes)) < 0) {
            if (outcome == Publication.CLOSED || outcome == Publication.MAX_POSITION_EXCEEDED)
                throw new IllegalStateException("offer: " + outcome);
            work();
        }
        work();
    }

    private void take(long number) {
        while (taken < number) {
            if (in.poll(assembler, 16) == 0) work();
            if (in.isClosed()) throw new IllegalStateException("the other process is gone");
        }
    }

    private void pingPong(int rank, int bytes, long times) {
        long first = taken;
        for (long turn = 1; turn <= times; turn++) {
            if (rank == 1) take(first + turn);
            send(bytes);
            source.setMemory(0, bytes, (byte) turn);
            if (rank == 0) take(first + turn);
        }
    }

    private void stream(int rank, int bytes, long times) {
        long first = taken;
        if (rank == 1) {
            take(first + times);
            send(8);
            return;
        }
        for (long turn = 1; turn <= times; turn++) {
            source.setMemory(0, bytes, (byte) turn);
            send(bytes);
        }
        take(first + 1);
    }

    public static void main(String[] args) {
        int rank = Integer.parseInt(args[0]);
        boolean streams = args[3].equals("bandwidth"), quick = args[4].equals("1");
        AeronPair pair = new AeronPair(rank, args[1], Integer.parseInt(args[2]));
        int runs = quick ? 2 : 15;
        for (int bytes : SIZES) {
            long times = streams ? (16 << 20) / bytes : 1_000_000 / (5000 + bytes / 2);
            times = Math.max(4, Math.min(times, quick ? 100 : 2000));
            double[] values = new double[runs];
            // The first runs are for the compiler.
            for (int run = quick ? 0 : -5; run < runs; run++) {
                long start = System.nanoTime();
                if (streams) pair.stream(rank, bytes, times);
                else pair.pingPong(rank, bytes, times);
                double ns = System.nanoTime() - start;
                if (run >= 0) values[run] = streams ? bytes * times / ns : ns / (2 * times);
            }
            Arrays.sort(values);
            double median = (values[(runs - 1) / 2] + values[runs / 2]) / 2;
            if (rank == 0)
                System.out.printf(Locale.ROOT, "%d %.4f %.4f %.4f %d%n", bytes, median, values[0], values[runs - 1], runs);
        }
        // What is acked on the way must not be cut off.
        long end = System.nanoTime() + 200_000_000L;
        while (System.nanoTime() < end) pair.work();
        pair.aeron.close();
        pair.driver.close();
    }
}
